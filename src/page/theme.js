// The colour scheme: that of the system, or the one that was chosen. Runs before anything is painted, so a
// dark page never flashes white; everything else waits for the modules.
(() => {
  const kKey = 'fathom.theme';
  const kOrder = ['auto', 'light', 'dark'];
  const kNames = {auto: 'as the system', light: 'light', dark: 'dark'};

  const stored = () => {
    try {
      return localStorage.getItem(kKey);
    } catch {
      return null;  // storage is switched off
    }
  };
  const apply = (theme) => {
    if (theme === 'auto') delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
  };

  let theme = kOrder.includes(stored()) ? stored() : 'auto';
  apply(theme);

  document.addEventListener('DOMContentLoaded', () => {
    const button = document.getElementById('theme');
    const show = () => {
      const name = `Colours: ${kNames[theme]}`;
      button.setAttribute('aria-label', name);
      button.title = name;
      const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
      const use = document.createElementNS('http://www.w3.org/2000/svg', 'use');
      svg.setAttribute('aria-hidden', 'true');
      use.setAttribute('href', `#i-${theme}`);
      svg.append(use);
      button.replaceChildren(svg);
    };
    button.addEventListener('click', () => {
      theme = kOrder[(kOrder.indexOf(theme) + 1) % kOrder.length];
      try {
        localStorage.setItem(kKey, theme);
      } catch {
        // Not kept; it holds until the page is left.
      }
      apply(theme);
      show();
    });
    show();
  });
})();
