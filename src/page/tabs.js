// The tabs, worked by pointer and by arrow keys; the one that is shown stands in the address.
//
//   startTabs({onShow: (name) => ...});

import {byId} from './dom.js';

const kNames = ['chat', 'engine'];

export function startTabs({onShow}) {
  const tabs = kNames.map((name) => byId(`tab-${name}`));
  const show = (name, {focus = false} = {}) => {
    for (const other of kNames) {
      const chosen = other === name;
      byId(`tab-${other}`).setAttribute('aria-selected', String(chosen));
      byId(`tab-${other}`).tabIndex = chosen ? 0 : -1;
      byId(`view-${other}`).hidden = !chosen;
      if (chosen && focus) byId(`tab-${other}`).focus();
    }
    window.history.replaceState(null, '', name === kNames[0] ? location.pathname : `#${name}`);
    onShow(name);
  };
  tabs.forEach((tab, i) => {
    tab.addEventListener('click', () => show(kNames[i]));
    tab.addEventListener('keydown', (event) => {
      const count = kNames.length;
      const to = {ArrowLeft: (i + count - 1) % count, ArrowRight: (i + 1) % count, Home: 0, End: count - 1}[event.key];
      if (to === undefined) return;
      event.preventDefault();
      show(kNames[to], {focus: true});
    });
  });
  const fromAddress = () => (kNames.includes(location.hash.slice(1)) ? location.hash.slice(1) : null);
  window.addEventListener('hashchange', () => fromAddress() && show(fromAddress()));
  document.querySelector('.skip-link').addEventListener('click', (event) => {
    event.preventDefault();
    show('chat');
    byId('prompt').focus();
  });
  show(fromAddress() ?? kNames[0]);
}
