"use strict";
(() => {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");

  // A string that starts with "--" names a colour of the style sheet.
  const resolve = (value, style) => {
    if (typeof value === "string") return value.startsWith("--") ? style.getPropertyValue(value).trim() : value;
    if (Array.isArray(value)) return value.map((item) => resolve(item, style));
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, resolve(item, style)]));
  };

  // On a touch screen a drag scrolls the page; elsewhere it zooms into a curve.
  const fixedrange = window.matchMedia("(pointer: coarse)").matches;
  const axis = { fixedrange, gridcolor: "--rule", zerolinecolor: "--rule", linecolor: "--rule", tickcolor: "--rule", automargin: true };

  const draw = () => {
    const style = getComputedStyle(document.documentElement);
    figures.forEach((figure, index) => {
      const layout = {
        autosize: true,
        height: 240,
        margin: { l: 8, r: 8, t: 8, b: 8 },
        font: { family: style.getPropertyValue("--sans"), size: 12, color: "--muted" },
        paper_bgcolor: "rgba(0,0,0,0)",
        plot_bgcolor: "rgba(0,0,0,0)",
        showlegend: false,
        dragmode: fixedrange ? false : "zoom",
        hovermode: "x unified",
        hoverlabel: { bgcolor: "--paper", bordercolor: "--rule", font: { color: "--ink" } },
        ...figure.layout,
        xaxis: { ...axis, nticks: 6, showgrid: false, hoverformat: "d", tickformat: "d", unifiedhovertitle: { text: "step %{x}" }, ...figure.layout.xaxis },
        yaxis: { ...axis, nticks: 5, ...figure.layout.yaxis },
      };
      const options = { responsive: true, displayModeBar: false, scrollZoom: false };
      Plotly.react(`chart-${index}`, resolve(figure.data, style), resolve(layout, style), options);
    });
  };

  const select = (step) => {
    for (const button of document.querySelectorAll("button[data-step]"))
      button.setAttribute("aria-pressed", String(button.dataset.step === step));
    for (const section of document.querySelectorAll("section[data-step]")) section.hidden = section.dataset.step !== step;
  };

  draw();
  dark.addEventListener("change", draw);
  for (const button of document.querySelectorAll("button[data-step]"))
    button.addEventListener("click", () => select(button.dataset.step));
})();
