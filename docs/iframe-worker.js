// Search in pages that are opened from disk: browsers start no worker there. A hidden frame does its
// work: a frame without an address may be filled by the page that made it. Elsewhere nothing changes.
if (location.protocol === "file:") {
  window.Worker = class {
    constructor(address) {
      this.onmessage = this.onerror = this.onmessageerror = null;
      this.waiting = []; // what is told before the frame listens
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      (document.body || document.documentElement).append(this.frame);
      this.inside = this.frame.contentWindow;
      this.inside.postMessage = (data) =>
        setTimeout(() => this.onmessage && this.onmessage({ data: structuredClone(data) }));
      const script = this.inside.document.createElement("script");
      script.src = new URL(address, location.href).href;
      script.onload = () => {
        this.listens = true;
        this.waiting.splice(0).forEach((data) => this.postMessage(data));
      };
      script.onerror = (event) => this.onerror && this.onerror(event);
      this.inside.document.documentElement.append(script);
    }

    postMessage(data) {
      if (!this.listens) {
        this.waiting.push(data);
        return;
      }
      const copy = structuredClone(data);
      setTimeout(() => this.inside.onmessage && this.inside.onmessage({ data: copy }));
    }

    terminate() {
      this.listens = false;
      this.waiting = [];
      this.frame.remove();
    }
  };
}
