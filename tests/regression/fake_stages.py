"""Stands for Pyserini's commands in tests of the runner: same options, toy work, no JVM. Run as a script.

FAKE_BREAK names a part to do wrong: encode, index (loses a document), search (loses a query), short (loses a hit), stranger
(an unknown document), quantiser (queries weigh twice as much in the search), empty (no vector has a term).
"""

import json
import os
import sys
from pathlib import Path


def option(name: str) -> Path:
    return Path(sys.argv[sys.argv.index(name) + 1].removeprefix("splade-rescaled:"))


def vectors(folder: Path) -> dict[str, dict[str, int]]:
    lines = (folder / "embeddings.jsonl").read_text().splitlines()
    return {found["id"]: found["vector"] for found in map(json.loads, lines)}


def counts(found: dict[str, dict[str, int]]) -> dict[str, int]:
    return {
        "documents": len(found),
        "unique_terms": len({term for vector in found.values() for term in vector}),
        "postings": sum(map(len, found.values())),
        "impacts": sum(sum(vector.values()) for vector in found.values()),
    }


def main() -> None:
    wrong = os.environ.get("FAKE_BREAK", "")
    module = sys.argv[2]
    if module == "pyserini.encode":
        if wrong == "encode":
            raise ValueError("the model is broken")
        option("--embeddings").mkdir()
        with open(option("--embeddings") / "embeddings.jsonl", "w") as stream:
            for line in (option("--corpus") / "corpus.jsonl").read_text().splitlines():
                document = json.loads(line)
                vector = dict.fromkeys(document["text"].split() if wrong != "empty" else (), 10)
                stream.write(json.dumps({"id": document["id"], "vector": vector}) + "\n")
    elif module == "pyserini.index.lucene":
        found = vectors(option("--input"))
        if wrong == "index":
            found.popitem()
        option("--index").mkdir()
        (option("--index") / "embeddings.jsonl").write_text(
            "".join(json.dumps({"id": name, "vector": vector}) + "\n" for name, vector in found.items() if vector)
        )
    elif module == "pyserini_rescale.regression.index_stats":
        from pyserini_rescale.encode.vectors import count_vectors
        from pyserini_rescale.indexing import problems

        encoded, index = count_vectors(option("--embeddings")), counts(vectors(option("--index")))
        found = {"vectors": encoded, "index": index, "problems": problems(encoded, index)}
        option("--output").write_text(json.dumps(found))
    elif module == "pyserini.search.lucene":
        index = vectors(option("--index"))
        lines = []
        for query, entry in json.loads(option("--topics").read_text()).items():
            words = entry["title"].split()
            weight = 2 if wrong == "quantiser" else 1
            scores = {name: sum(weight * vector.get(word, 0) for word in words) for name, vector in index.items()}
            order = sorted(
                ((score, name) for name, score in scores.items() if score), key=lambda pair: (-pair[0], pair[1])
            )
            lines += [f"{query} Q0 {name} {rank} {score:.6f} Anserini\n" for rank, (score, name) in enumerate(order, 1)]
        if wrong == "search":
            lines = [line for line in lines if not line.startswith("q2 ")]
        if wrong == "short":
            lines.pop()
        if wrong == "stranger":
            lines.append("q1 Q0 stranger 99 0.1 Anserini\n")
        option("--output").write_text("".join(lines))
    elif module == "pyserini_rescale.regression.query_stats":
        from pyserini_rescale.regression import query_stats

        raise SystemExit(query_stats.main(sys.argv[3:], lambda model: lambda text: dict.fromkeys(text.split(), 1)))
    elif module == "pyserini_rescale.regression.empty_run":
        from pyserini_rescale.regression import empty_run

        raise SystemExit(empty_run.main(sys.argv[3:]))
    else:
        raise SystemExit(f"no fake of {module}")


if __name__ == "__main__":
    main()
