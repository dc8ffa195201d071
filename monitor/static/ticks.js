// One event stream for all tabs: over HTTP/1.1 a browser grants six connections a host,
// so a stream for each tab would hang the seventh.
"use strict";
const ports = new Set();
let source = null;

function open() {
  source = new EventSource(new URL("../events", location.href));
  source.onmessage = (event) => {
    for (const port of ports) port.postMessage(event.data);
  };
}

self.onconnect = (event) => {
  const port = event.ports[0];
  ports.add(port);
  port.onmessage = (message) => {
    if (message.data === "bye") ports.delete(port);
  };
  if (source === null || source.readyState === EventSource.CLOSED) open();
};
