// Puts the page together: the chat, the view of the engine, and the state in the top bar.

import {startChat} from './chat.js';
import {byId} from './dom.js';
import {startEngineView} from './engine.js';
import {startModelPanel} from './model_panel.js';
import {startRankTable} from './rank_table.js';
import {pulseOf, showLoading} from './readiness.js';
import {ServerFacts} from './server_facts.js';
import {StatsFeed} from './stats_feed.js';
import {startTabs} from './tabs.js';

let model = '';

const announce = (text) => (byId('announcer').textContent = text);

function showPulse(feed) {
  const {name, text} = pulseOf(feed);
  byId('pulse').dataset.state = name;
  byId('pulse').title = feed.error;
  byId('pulse-text').textContent = text;
  showLoading(feed.error ? {} : feed.readiness);
}

// The name to send: the page brings it along, so the first message waits for nothing. The feed brings it anew
// when the server was started again with another model.
function showModel(name) {
  if (name === model) return;
  model = name;
  const shortName = name.split('/').at(-1);
  byId('model-name').textContent = shortName;
  byId('model-name').title = `Served model: ${name}`;
  document.title = `Fathom · ${shortName}`;
}

const feed = new StatsFeed();
const facts = new ServerFacts(feed);
const engineView = startEngineView(feed);
startTabs({onShow: (name) => {
  if (name === 'engine') engineView.show();
}});
showModel(document.querySelector('meta[name="served-model"]').content);
startModelPanel(facts);
startRankTable(facts, () => !byId('view-engine').hidden);
startChat({model: () => model, announce, facts});
feed.listen(showPulse);
feed.listen(({model: served}) => served && showModel(served));
feed.start();
if (matchMedia('(pointer: fine)').matches) byId('prompt').focus();
