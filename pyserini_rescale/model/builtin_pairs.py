"""Sixteen English questions and passages that answer them, on subjects far apart; written for this package.

Enough to see whether a head is far too large or far too small. To calibrate for a collection, use texts of its own.
"""

PAIRS: tuple[tuple[str, str], ...] = (
    (
        "why does bread dough rise",
        "Yeast feeds on the sugars in flour and gives off carbon dioxide. The gas is caught in the stretchy "
        "network of gluten that kneading builds, so the dough swells to about twice its size before it is "
        "baked.",
    ),
    (
        "how far away is the moon",
        "On average the Moon is 384,400 kilometres from Earth. Its orbit is an ellipse, and the distance "
        "varies between roughly 363,000 kilometres at perigee and 405,000 at apogee.",
    ),
    (
        "symptoms of iron deficiency",
        "People who lack iron often feel tired and short of breath, look pale and have cold hands. Brittle "
        "nails and headaches are common as well. A blood test for haemoglobin and ferritin confirms anaemia.",
    ),
    (
        "what is a contract of carriage",
        "A contract of carriage binds a carrier to bring goods or passengers to an agreed place. It sets out "
        "who pays the freight, and who is liable if the cargo is lost, damaged or late.",
    ),
    (
        "when were the first Olympic Games of modern times held",
        "The modern Olympics began in Athens in April 1896. About 240 athletes from fourteen nations took "
        "part in forty-three events, among them the first marathon race.",
    ),
    (
        "how does a heat pump work",
        "A heat pump moves warmth from the air or the ground into a house. A refrigerant evaporates outside "
        "at a low temperature, is compressed, and gives off its heat indoors as it condenses again.",
    ),
    (
        "best way to remove red wine stains",
        "Blot the spill at once with a clean cloth; do not rub. Cover the spot with salt or pour soda water "
        "over it, then wash the fabric in cold water with a little detergent before it dries.",
    ),
    (
        "what causes inflation",
        "Prices rise in general when demand outruns what an economy can produce, when costs such as wages or "
        "energy go up, or when households and firms expect further increases. Central banks answer with "
        "higher interest rates.",
    ),
    (
        "difference between a list and a tuple in Python",
        "Both hold a sequence of objects. A list can be changed after it was made: items are appended, "
        "replaced or deleted. A tuple cannot, which is why it can serve as a dictionary key.",
    ),
    (
        "where do monarch butterflies spend the winter",
        "Each autumn millions of monarchs fly from Canada and the eastern United States to a few fir forests "
        "in the mountains of central Mexico, where they cluster on the trunks until March.",
    ),
    (
        "who painted the Night Watch",
        "Rembrandt van Rijn finished the group portrait of an Amsterdam militia company in 1642. The huge "
        "canvas hangs in the Rijksmuseum; a strip was cut from its left side in 1715 to fit it between two "
        "doors.",
    ),
    (
        "how are earthquakes measured",
        "Seismographs record how the ground shakes. From the records of several stations the moment magnitude "
        "is computed, a logarithmic scale on which one step means about thirty-two times more energy.",
    ),
    (
        "can you plant tomatoes next to potatoes",
        "Gardeners are advised to keep the two apart. Both belong to the nightshade family and share diseases "
        "such as late blight, which then spreads from one bed to the other and spoils both crops.",
    ),
    (
        "what does the left ventricle do",
        "The left ventricle is the strongest chamber of the heart. It receives blood rich in oxygen from the "
        "left atrium and pumps it through the aortic valve into the arteries of the body.",
    ),
    (
        "rules for castling in chess",
        "Castling moves king and rook at once. Neither may have moved before, no piece may stand between "
        "them, and the king must not be in check, pass over an attacked square, or land on one.",
    ),
    (
        "why is the Suez Canal important",
        "The canal joins the Mediterranean and the Red Sea. Ships between Europe and Asia save the long way "
        "around Africa, some nine thousand kilometres, and more than a tenth of world trade passes through "
        "it.",
    ),
)
