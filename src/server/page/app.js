// Puts the page together: the chat, the view of the engine, and the state in the top bar.

import {fetchJson} from './api.js';
import {startChat} from './chat.js';
import {formatNumber} from './chart.js';
import {byId} from './dom.js';
import {startEngineView} from './engine.js';
import {StatsFeed} from './stats_feed.js';
import {startTabs} from './tabs.js';

let model = 'default';

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

async function showModel() {
  try {
    const {data} = await fetchJson('/v1/models');
    model = data[0].id;
    byId('model-name').textContent = model.split('/').at(-1);
    byId('model-name').title = `Served model: ${model}`;
    document.title = `Fathom · ${model.split('/').at(-1)}`;
  } catch {
    // The chat says what is wrong when it is used; "default" is answered by any server.
  }
}

const feed = new StatsFeed();
const engineView = startEngineView(feed);
startTabs({onShow: (name) => {
  if (name === 'engine') engineView.show();
}});
startChat({model: () => model, announce});
feed.listen(showPulse);
feed.start();
showModel();
if (matchMedia('(pointer: fine)').matches) byId('prompt').focus();
