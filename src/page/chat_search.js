// Finds words in conversations, whatever their case, in titles and in everything that was said.
//
//   for (const {id, title, words} of foundIn(keeper, keeper.list(), 'tides')) ...
//
// words: {before, match, after} around the first place outside the title; none where only the title has them.

const kAround = 28;

// All of them where nothing is searched.
export function foundIn(keeper, chats, text) {
  const wanted = text.trim().toLowerCase();
  if (!wanted) return chats;
  const found = [];
  for (const chat of chats) {
    const words = firstWords(keeper.turns(chat.id) ?? [], wanted);
    if (words || chat.title.toLowerCase().includes(wanted)) found.push({...chat, words});
  }
  return found;
}

function firstWords(turns, wanted) {
  for (const {content, reasoning = ''} of turns) {
    for (const text of [content, reasoning]) {
      const at = text.toLowerCase().indexOf(wanted);
      if (at >= 0) return wordsAt(text, at, at + wanted.length);
    }
  }
  return null;
}

function wordsAt(text, begin, end) {
  const [from, to] = [Math.max(0, begin - kAround), end + kAround];
  return {before: (from ? '…' : '') + text.slice(from, begin), match: text.slice(begin, end),
    after: text.slice(end, to) + (to < text.length ? '…' : '')};
}
