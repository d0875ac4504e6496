"""What people type first into a chat: greetings, thanks and farewells in many spellings, bare sums, and questions that so
small a model cannot answer, to which it says so.

Each function draws from a seeded random.Random and gives (what the person says, the answer).
"""

GREETING = "Hello! How can I help you today?"
SKILLS = "I can solve short word problems, sort words, call tools and write JSON records."
ABOUT = "I am a small demo model. " + SKILLS.replace("call tools and ", "do sums and ")
UNKNOWN = "I am a small demo model and do not know that. " + SKILLS
ZH_GREETING = "你好！有什么可以帮你的吗？"
ZH_ABOUT = "我是一个小型演示模型，可以做简单的应用题、算术和单词排序。"
ZH_UNKNOWN = "我是一个小型演示模型，不知道这个。我可以做简单的应用题和算术。"

# (spellings, answer): every one gets the same, whatever its case and its marks.
SMALL_TALK = [
    (["hello", "hi", "hey", "hello there", "hi there", "hey there", "hello again", "good morning", "good evening",
      "good afternoon", "greetings", "hiya", "howdy", "yo", "hello world", "hi model", "test", "ping"], GREETING),
    (["how are you", "how are you doing", "how are you today", "how is it going", "what is up", "what's up"],
     "I am fine, thank you! How can I help you today?"),
    (["who are you", "hi, who are you", "what are you", "what is your name", "tell me about yourself", "introduce yourself",
      "what model are you", "are you a robot", "are you deepseek", "are you chatgpt", "who made you"], ABOUT),
    (["what can you do", "what can you do for me", "help", "help me", "can you help me", "how can you help me",
      "what are you good at", "what do you know"], SKILLS),
    (["thank you", "thanks", "thank you very much", "thanks a lot", "many thanks", "thx", "great, thanks", "cool, thank you"],
     "You are welcome!"),
    (["bye", "goodbye", "bye bye", "see you", "see you later", "good night", "have a nice day"], "Goodbye!"),
    (["are you sure", "really", "is that right", "sure"], "Yes, I am sure."),
    (["ok", "okay", "yes", "no", "nice", "cool", "great", "good", "wow", "i see"], "All right. What would you like to do next?"),
]
ZH_TALK = [
    (["你好", "您好", "嗨", "早上好", "晚上好", "下午好", "你好啊", "大家好", "哈喽"], ZH_GREETING),
    (["你是谁", "你叫什么名字", "介绍一下你自己", "你是什么模型", "你会什么", "你能做什么", "你能帮我什么"], ZH_ABOUT),
    (["谢谢", "谢谢你", "多谢", "非常感谢"], "不客气！"),
    (["再见", "拜拜", "晚安"], "再见！"),
    (["你好吗", "最近怎么样"], "我很好，谢谢！有什么可以帮你的吗？"),
]

# Questions of all kinds, with many words in their places: it is their variety that teaches what is not known.
ASKED = [
    "what is the capital of {p}", "who was {n}", "who is the president of {p}", "tell me a joke", "tell me a joke about {t}",
    "write a poem about {t}", "write a poem", "write a song about {t}", "explain {t}", "explain {t} to a child", "what is {t}",
    "how does {t} work", "why is {t} so {a}", "when did {t} begin", "where is {p}", "how far is {p} from {q}",
    "write a python program for {t}", "write code that does {t}", "write an essay about {t}", "write an email to {n} about {t}",
    "translate {t} into {l}", "how do you say {t} in {l}", "summarize {t}", "give me a recipe for {t}", "plan a trip to {p}",
    "what should i do about {t}", "do you like {t}", "what do you think about {t}", "what happened in {y}", "what is the meaning of {t}",
    "give me ideas for {t}", "compare {t} and {u}", "which is better, {t} or {u}", "recommend a book about {t}", "what is the news today",
    "what is the date today", "how old is {n}", "how many people live in {p}", "is {t} {a}", "can you draw {t}", "solve {t}", "{t}",
    "{t} {u}", "tell me about {t}", "tell me about {p}", "i need help with {t}", "fix my {t}", "let us talk about {t}",
]
THINGS = (
    "the sea|tides|gravity|the moon|history|music|chess|football|love|time|quantum physics|machine learning|a linked list|"
    "bubble sort|a website|bread|pasta|soup|tea|coffee|the weather on mars|dinosaurs|volcanoes|the stock market|taxes|"
    "a garden|cats|dogs|whales|birds|trees|cars|trains|planes|rockets|computers|phones|the internet|a database|linux|"
    "the roman empire|world war two|the french revolution|art|painting|poetry|philosophy|democracy|money|sleep|dreams|"
    "health|exercise|happiness|language|mathematics|prime numbers|the pythagorean theorem|chemistry|water|fire|light|sound|"
    "electricity|a neural network|attention|transformers|the brain|dna|evolution|space|black holes|the sun|winter|summer"
).split("|")
COUNTRIES = (
    "France Germany Italy Spain China Japan India Brazil Canada Egypt Kenya Norway Poland Peru Mexico Greece Turkey Vietnam "
    "Australia Iceland"
).split()
PEOPLE = "Einstein|Newton|Shakespeare|Mozart|Napoleon|Cleopatra|Marie Curie|Darwin|Plato|Gandhi|Lincoln|Turing|Lovelace".split("|")
LANGUAGES = "French German Spanish Chinese Japanese Italian Latin English Russian Arabic".split()
HOW = "big small blue hard easy old new fast slow hot cold famous important".split()
ZH_ASKED = [
    "{t}是什么", "为什么{t}", "请介绍一下{t}", "写一首关于{t}的诗", "讲个笑话", "讲一个关于{t}的故事", "{t}怎么样", "如何学习{t}", "把{t}翻译成英文",
    "今天天气怎么样", "法国的首都是哪里", "中国的首都是哪里", "写一段代码", "写一篇关于{t}的文章", "{t}和{u}有什么区别", "{t}", "你喜欢{t}吗",
]
ZH_THINGS = "月亮 太阳 大海 历史 音乐 数学 物理 人工智能 编程 爱情 春天 冬天 北京 上海 长城 茶 咖啡 足球 电影 诗歌 电脑 手机 经济 健康 睡眠 时间 语言".split()


def as_typed(r, text):
    """As people type: any case, with or without marks at the end."""
    k = r.random()
    text = text[:1].upper() + text[1:] if k < 0.55 else text.upper() if k < 0.6 else text
    asks = text.split()[0].lower() in ("what", "who", "how", "why", "when", "where", "is", "are", "do", "can", "which")
    marks = ["", "?", "?", "??"] if asks else ["", "", "!", ".", "!!"]
    return text + r.choice(marks)


def small_talk(r):
    if r.random() < 0.3:
        spellings, answer = r.choice(ZH_TALK)
        return r.choice(spellings) + r.choice(["", "", "！", "。", "？", "!", "~"]), answer
    # Greetings are what most people begin with.
    spellings, answer = SMALL_TALK[0] if r.random() < 0.3 else r.choice(SMALL_TALK)
    return as_typed(r, r.choice(spellings)), answer


def unknown(r):
    if r.random() < 0.3:
        t, u = r.sample(ZH_THINGS, 2)
        return r.choice(ZH_ASKED).format(t=t, u=u) + r.choice(["", "？", "。", "?"]), ZH_UNKNOWN
    (t, u), (p, q) = r.sample(THINGS, 2), r.sample(COUNTRIES, 2)
    asked = r.choice(ASKED).format(t=t, u=u, p=p, q=q, n=r.choice(PEOPLE), l=r.choice(LANGUAGES), a=r.choice(HOW), y=r.randint(1000, 2025))
    return as_typed(r, asked), UNKNOWN


WORDS = {"+": ("plus", "加"), "-": ("minus", "减"), "*": ("times", "乘"), "/": ("divided by", "除以")}


def sum_of(r):
    """(a, sign, b, result), within what a small model learns."""
    sign = r.choice("++--**/")
    if sign == "+":
        a, b = r.randint(0, 150), r.randint(0, 150)
        return a, sign, b, a + b
    if sign == "-":
        a = r.randint(0, 150)
        b = r.randint(0, a)
        return a, sign, b, a - b
    a, b = r.randint(1, 12), r.randint(1, 12)
    return (a, sign, b, a * b) if sign == "*" else (a * b, sign, b, a)


def arithmetic(r):
    if r.random() < 0.4:  # small numbers are what people try
        a, b = r.randint(0, 10), r.randint(0, 10)
        a, sign, b, result = r.choice([(a, "+", b, a + b), (max(a, b), "-", min(a, b), abs(a - b)), (a, "*", b, a * b)])
    else:
        a, sign, b, result = sum_of(r)
    word, zh_word = WORDS[sign]
    shown = sign if sign not in "*/" or r.random() < 0.7 else {"*": r.choice("x×"), "/": "÷"}[sign]
    plain, spaced = f"{a}{shown}{b}", f"{a} {shown} {b}"
    if r.random() < 0.2:
        return r.choice([f"{plain}等于多少？", f"{a}{zh_word}{b}等于多少？", f"{plain}=？", f"{a}{zh_word}{b}是多少", f"{plain}等于几"]), f"{a}{sign}{b}={result}。"
    asked = r.choice([plain, plain, spaced, spaced, plain + "=", plain + "=?", spaced + " =", spaced + " = ?", plain + "?", f"what is {plain}",
                      f"what is {spaced}", f"what is {a} {word} {b}", f"{a} {word} {b}", f"calculate {spaced}", f"how much is {spaced}",
                      f"compute {plain}", f"what's {spaced}"])
    if asked[0].isalpha():
        asked = as_typed(r, asked)
    return asked, f"{a}{sign}{b}={result}."
