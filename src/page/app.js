// Puts the page together: the chat, the view of the engine, and the state in the top bar.

import {startChat} from './chat.js';
import {formatNumber} from './chart.js';
import {byId} from './dom.js';
import {startEngineView} from './engine.js';
import {StatsFeed} from './stats_feed.js';
import {startTabs} from './tabs.js';

let model = '';

const announce = (text) => (byId('announcer').textContent = text);

function showPulse({current, error}) {
  const pulse = byId('pulse');
  const busy = (current.running ?? 0) + (current.queued ?? 0) > 0;
  pulse.dataset.state = error ? 'down' : busy ? 'busy' : 'idle';
  pulse.title = error;
  byId('pulse-text').textContent = error ? 'Offline'
    : busy ? `${current.running} running · ${formatNumber(current.generation_tokens_per_s ?? 0)} tok/s`
    : 'Idle';
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
const engineView = startEngineView(feed);
startTabs({onShow: (name) => {
  if (name === 'engine') engineView.show();
}});
showModel(document.querySelector('meta[name="served-model"]').content);
startChat({model: () => model, announce});
feed.listen(showPulse);
feed.listen(({model: served}) => served && showModel(served));
feed.start();
if (matchMedia('(pointer: fine)').matches) byId('prompt').focus();
