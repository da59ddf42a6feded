// Shows a Plotly figure in one element of the page for as long as the page shows the figure.
//
// Streamlit calls the default export for every new version of the data and for every change of the theme.

const FULLSCREEN = {
  width: 24,
  height: 24,
  path: "M3 3h7v2H5v5H3zM14 3h7v7h-2V5h-5zM3 14h2v5h5v2H3zM19 14h2v7h-7v-2h5z",
};

// One object for all figures and refreshes: plotly.js draws a figure from scratch when its configuration changes.
const CONFIG = {
  displaylogo: false,
  showSendToCloud: false,
  modeBarButtonsToRemove: ["lasso2d", "select2d", "sendChartToCloud"], // the last sends data to another site
  modeBarButtonsToAdd: [{ name: "Fullscreen", title: "Fullscreen", icon: FULLSCREEN, click: toggleFullscreen }],
};

function toggleFullscreen(node) {
  const done = document.fullscreenElement ? document.exitFullscreen() : node.requestFullscreen();
  done.catch((error) => console.warn("The browser refuses the change of the full screen", error));
}

let loading = null;

function loadPlotly(url) {
  loading ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = url;
    script.onload = () => resolve(window.Plotly);
    script.onerror = () => {
      loading = null; // the next refresh tries again
      script.remove();
      reject(new Error(`plotly.js did not come from ${url}`));
    };
    document.head.append(script);
  });
  return loading;
}

// Return a colour of the page as the browser computes it, with another opacity if one is given.
function colourOf(node, variable, opacity = 1) {
  const probe = document.createElement("span");
  probe.style.color = `var(${variable})`;
  node.append(probe);
  const [red, green, blue, alpha = 1] = getComputedStyle(probe).color.match(/[\d.]+/g).map(Number);
  probe.remove();
  return `rgba(${red},${green},${blue},${alpha * opacity})`;
}

function themeOf(parent) {
  const text = colourOf(parent, "--st-text-color");
  const soft = colourOf(parent, "--st-text-color", 0.65);
  const line = colourOf(parent, "--st-text-color", 0.12);
  const background = colourOf(parent, "--st-background-color");
  const family = getComputedStyle(parent).getPropertyValue("--st-font");
  const axis = {
    automargin: true,
    gridcolor: line,
    zerolinecolor: line,
    tickcolor: line,
    minor: { gridcolor: line },
    tickfont: { color: soft, size: 12 },
    title: { font: { color: soft, size: 14 } },
  };
  return {
    layout: {
      font: { family, size: 12, color: soft },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      legend: { font: { color: text, size: 12 } },
      hoverlabel: { bgcolor: background, bordercolor: line, font: { family, size: 12, color: text } },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: colourOf(parent, "--st-text-color", 0.3), activecolor: soft },
      margin: { pad: 8 },
      xaxis: { ...axis, showgrid: false, zeroline: false },
      yaxis: axis,
    },
  };
}

// Draw what the node has to show.  The figure is read anew each time: plotly.js writes what the user does into the
// object that it was given, and takes an object with these changes for one in which the program has made them.
async function draw(node) {
  const { figure, name, subject, library } = node.shown;
  const { data, layout } = JSON.parse(figure);
  for (const part of [layout, layout.xaxis, layout.yaxis]) {
    part.uirevision = `${part.uirevision} of ${subject}`;
  }
  const height = layout.height ?? 450;
  const full = document.fullscreenElement === node;
  node.setAttribute("aria-label", name);
  node.style.height = full ? "100%" : `${height}px`;
  node.style.background = full ? colourOf(node.parentElement, "--st-background-color") : "";
  const Plotly = window.Plotly ?? (await loadPlotly(library));
  const width = node.clientWidth;
  if (!node.isConnected || width === 0) {
    return; // the observer calls again as soon as there is room
  }
  const size = { width, height: full ? node.clientHeight : height };
  await Plotly.react(node, data, { ...layout, ...size, template: themeOf(node.parentElement) }, CONFIG);
}

// Draw soon, and once for all that happens until then.
function request(node) {
  node.pending ??= Promise.resolve()
    .then(() => {
      node.pending = null;
      return draw(node);
    })
    .catch((error) => console.error(error));
}

function mount(parent) {
  const node = document.createElement("div");
  node.className = "psplatform-chart";
  node.style.overflow = "hidden";
  node.setAttribute("role", "figure");
  parent.append(node);
  let width = 0;
  node.observer = new ResizeObserver(() => {
    if (node.clientWidth !== width || document.fullscreenElement === node) {
      width = node.clientWidth;
      request(node);
    }
  });
  node.observer.observe(node);
  node.addEventListener("fullscreenchange", () => request(node));
  return node;
}

export default function ({ data, parentElement }) {
  const node = parentElement.querySelector(":scope > .psplatform-chart") ?? mount(parentElement);
  node.shown = data;
  request(node);
  return () => {
    // Streamlit cleans up also when data are overtaken by newer ones while the figure stays.
    if (!node.isConnected) {
      node.observer.disconnect();
      window.Plotly?.purge(node);
    }
  };
}
