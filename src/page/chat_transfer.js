// Conversations as a file that the person keeps: buttons that write one and read one, and what is in it:
//   {"format": "fathom.chats", "version": 1, "chats": [{"title", "at": ms since 1970, "turns": [...]}]}
//
//   body.append(chatTransfer(keeper, (words) => show(words)));
//   importedChats(text)      // [{title, at, turns}], or a sentence that says what is wrong with the file

import {checkedTurns} from './conversation.js';
import {el, icon} from './dom.js';
import {kMaxTitle} from './kept_chats.js';

const kFormat = 'fathom.chats';
const kVersion = 1;
const kMaxFileBytes = 16_000_000;

export function chatTransfer(keeper, say) {
  const file = el('input', {type: 'file', id: 'import-file', 'aria-label': 'File of conversations', accept: '.json,application/json', hidden: true});
  file.addEventListener('change', async () => {
    if (file.files.length) say(await importFile(keeper, file.files[0]));
    file.value = '';  // the same file may be chosen again
  });
  const button = (id, name, label, onclick) => el('button', {type: 'button', class: 'quiet-button', id, onclick}, icon(name), label);
  return el('div', {class: 'chats-transfer'},
    button('export-chats', 'down', 'Export', () => say(exportAll(keeper))),
    button('import-chats', 'up', 'Import', () => file.click()), file);
}

function exportAll(keeper) {
  const chats = keeper.list().map(({id, title, at}) => ({title, at, turns: keeper.turns(id)})).filter(({turns}) => turns);
  if (!chats.length) return 'There is no conversation to export.';
  const text = JSON.stringify({format: kFormat, version: kVersion, chats}, null, 1);
  const url = URL.createObjectURL(new Blob([text], {type: 'application/json'}));
  el('a', {href: url, download: `fathom-chats-${new Date().toISOString().slice(0, 10)}.json`}).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
  return '';
}

async function importFile(keeper, file) {
  const problem = (why) => `“${file.name}” was not imported: ${why}`;
  if (file.size > kMaxFileBytes) return problem(`it has more than ${kMaxFileBytes / 1e6} MB.`);
  const chats = importedChats(await file.text());
  if (typeof chats === 'string') return problem(chats);
  const numLeft = chats.length - keeper.take(chats);
  if (!numLeft) return '';
  return `${numLeft} of the ${chats.length} conversations in “${file.name}” were not imported: there is no room for them. Delete some first.`;
}

export function importedChats(text) {
  let data;
  try {
    data = JSON.parse(text);
  } catch (error) {
    return `it is not valid JSON: ${error.message}.`;
  }
  if (data?.format !== kFormat || !Array.isArray(data.chats)) return 'it is no file that this page exported.';
  if (data.version !== kVersion) return `its version is ${JSON.stringify(data.version)}, this page reads ${kVersion}.`;
  const chats = data.chats.map((chat) => ({title: chat?.title, at: chat?.at, turns: checkedTurns(chat?.turns)}));
  const wrong = chats.findIndex(({title, at, turns}) =>
    typeof title !== 'string' || !title.trim() || title.length > kMaxTitle || !Number.isFinite(at) || !turns?.length);
  if (wrong >= 0) return `conversation ${wrong + 1} needs a title of 1 to ${kMaxTitle} characters, a time and messages.`;
  return chats;
}
