#!/usr/bin/env bash
# Train one model of the paper (arXiv 2606.18811, Section 4.1) on 8 GPUs, on one node or several.
#
#   bash scripts/train_8gpu.sh table2:modernbert.k16
#   bash scripts/train_8gpu.sh table2:bert.k1 --set seed=1 --output runs/train/bert.seed1
#   bash scripts/train_8gpu.sh table2:bert.k1 --resume
#   HOSTFILE=hosts.txt bash scripts/train_8gpu.sh table2:bert.k1      # two nodes of four GPUs, see below
#   DRY_RUN=1 bash scripts/train_8gpu.sh table2:bert.k1               # print what would be run
#
# What follows the configuration goes to `python -m pyserini_rescale train`.
#
# Choices, and where they are made:
# - 64 triples a GPU, 8 GPUs, one epoch over 503,000 triples, bf16: regressions/training/paper.yaml. The global batch
#   decides what is trained, so another number of GPUs is refused unless batch.world_size is set to it; with fewer,
#   batch.accumulation keeps the global batch, though not the candidates of a query (128, those of its own GPU).
# - ZeRO stage 1 and the rest of DeepSpeed: regressions/training/zero1.yaml, a reason at each line. The paper used DDP;
#   what is computed is the same mean of gradients, but for float32 masters that begin as the bf16 weights.
# - --no_local_rank: the launcher then says who is who by environment variables, as torchrun does, and not by an option.
# - OMP_NUM_THREADS=1: a process a GPU, and tokenisation has threads of its own; more would only fight for cores.
# - Several nodes: HOSTFILE names a file of DeepSpeed's form, one line a node ("node1 slots=4"), with ssh without a
#   password between them, the same paths and a common file system for the output (a checkpoint is renamed once, when
#   all processes have written their part). Slurm users: srun starts `python -m pyserini_rescale train` itself, with
#   RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set from Slurm's variables.
# - A run that was cut short goes on with --resume: same data order, random numbers, learning rate and lambdas. On the
#   same number of processes: ZeRO's parts belong to one each.
set -euo pipefail

case "${1:-}" in
  "" | -h | --help) sed -n '2,11s/^# \{0,1\}//p' "$0"; exit 0 ;;
esac
config="$1"
shift

command=(deepspeed)
if [ -n "${HOSTFILE:-}" ]; then
  [ -f "$HOSTFILE" ] || { echo "error: HOSTFILE=$HOSTFILE is not a file" >&2; exit 2; }
  command+=(--hostfile "$HOSTFILE")
else
  command+=(--num_gpus 8)
fi
command+=(--no_local_rank --module pyserini_rescale train --config "$config" "$@")

if [ -n "${DRY_RUN:-}" ]; then
  python -m pyserini_rescale train --config "$config" "$@" --dry-run
  [ -z "${HOSTFILE:-}" ] || { printf '\nover the nodes of %s:\n' "$HOSTFILE"; printf '%q ' "${command[@]}"; echo; }
  exit
fi
if [ -z "${HOSTFILE:-}" ]; then
  found="$( (nvidia-smi --list-gpus 2> /dev/null || true) | wc -l)"
  [ "$found" -ge 8 ] || { echo "error: 8 GPUs are needed, $found found; DRY_RUN=1 prints what would be run" >&2; exit 2; }
fi
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
exec "${command[@]}"
