"use strict";
// Draws every figure, once as wide as the page has room for, and lets its legend show and hide series.
(function () {
  var NARROW = 720;
  var root = document.documentElement;
  var charts = JSON.parse(document.getElementById("charts").textContent);
  var config = {
    responsive: true,
    displaylogo: false,
    displayModeBar: "hover",
    modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"],
  };

  function isNarrow(node) { return node.clientWidth < NARROW; }

  function layoutOf(chart, narrow) {
    // plotly.js writes into the layout it is given.
    return JSON.parse(JSON.stringify(narrow ? chart.narrow : chart.wide));
  }

  function toggled(chart, node, buttons) {
    var hidden = {};
    buttons.forEach(function (button) {
      if (button.getAttribute("aria-pressed") === "false") hidden[button.dataset.label] = true;
    });
    var visible = chart.data.map(function (trace) { return !hidden[trace.legendgroup]; });
    window.Plotly.restyle(node, { visible: visible });
  }

  function legend(chart, node, holder) {
    var buttons = Array.prototype.slice.call(holder.querySelectorAll("button"));
    function set(button, on) { button.setAttribute("aria-pressed", on ? "true" : "false"); }
    buttons.forEach(function (button) {
      button.addEventListener("click", function () {
        set(button, button.getAttribute("aria-pressed") === "false");
        toggled(chart, node, buttons);
      });
      button.addEventListener("dblclick", function () {
        var alone = buttons.every(function (other) {
          return other === button || other.getAttribute("aria-pressed") === "false";
        });
        buttons.forEach(function (other) { set(other, alone || other === button); });
        toggled(chart, node, buttons);
      });
    });
  }

  var drawn = 0;
  charts.forEach(function (chart) {
    var node = document.getElementById("plot-" + chart.key);
    var narrow = isNarrow(node);
    window.Plotly.newPlot(node, chart.data, layoutOf(chart, narrow), config).then(function () {
      drawn += 1;
      root.dataset.drawn = String(drawn);
    });
    legend(chart, node, document.getElementById("legend-" + chart.key));
    window.addEventListener("resize", function () {
      if (isNarrow(node) !== narrow) {
        narrow = !narrow;
        window.Plotly.react(node, node.data, layoutOf(chart, narrow), config);
      }
    });
  });
})();
