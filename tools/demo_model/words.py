"""The words that the demo corpus draws from."""

NAMES = (
    "Ada Alan Amir Anna Bella Ben Carla Chen Clara Dana David Ella Emma Eva Felix Fiona Grace Hana Hugo Ida "
    "Ivan Jack James Jin Julia Kai Karl Lara Leo Lena Liam Lina Lucy Maya Mei Mia Milo Nadia Nina Noah Nora "
    "Olga Omar Oscar Paul Petra Quinn Rosa Ruth Sam Sara Simon Sofia Tara Theo Tom Uma Vera Victor Wei Yara "
    "Yusuf Zoe"
).split()
ITEMS = (
    "apples books candles cards carrots coins cookies cups eggs flowers keys lemons letters marbles muffins "
    "notebooks nuts oranges pears pencils pens pies plums postcards ribbons roses shells shirts spoons stamps "
    "stickers stones tickets tomatoes toys tulips"
).split()
BOXES = "bags baskets boxes crates drawers jars packs rows shelves trays".split()
CITIES = (
    "Athens Berlin Boston Cairo Chicago Delhi Dublin Geneva Hanoi Havana Kyoto Lagos Lima Lisbon London Madrid "
    "Milan Nairobi Oslo Paris Prague Quito Rome Seoul Shanghai Sydney Tokyo Toronto Vienna Warsaw"
).split()
COLORS = "black blue brown gold gray green orange pink purple red silver white yellow".split()
ANIMALS = (
    "bear bird cat cow deer dog duck fish fox frog goat hare hen horse lion mouse owl pig rabbit sheep wolf".split()
)
PLACES = (
    "at the market|in the garden|at school|in the kitchen|at the fair|in the shop|at the farm|in the library".split("|")
)
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
ZH_NAMES = "小明 小红 小华 小丽 小刚 小芳 小强 小美".split()
ZH_ITEMS = "苹果 书 铅笔 橙子 鸡蛋 花 糖果 气球".split()
