// Follows a log that grows: asks for what comes after the last offset, and waits on the server.

const view = document.getElementById("log");
const note = document.getElementById("log-note");
const WAIT_SECONDS = 20;
const RETRY_MS = 2000;
// A page that runs for hours must not hold everything: beyond this the oldest text goes.
const KEPT = 2_000_000;

function atBottom() {
  return view.scrollHeight - view.scrollTop - view.clientHeight < 40;
}

function append(html) {
  const follow = atBottom();
  // The server has escaped everything but the spans that carry colours.
  const part = document.createElement("span");
  part.innerHTML = html;
  view.append(part);
  while (view.childNodes.length > 1 && view.textContent.length > KEPT) view.firstChild.remove();
  if (follow) view.scrollTop = view.scrollHeight;
}

async function follow() {
  let offset = Number(view.dataset.offset);
  let complete = view.dataset.complete === "true";
  if (!complete) note.textContent = "Following…";
  while (!complete) {
    try {
      const answer = await fetch(`${view.dataset.url}?offset=${offset}&wait=${WAIT_SECONDS}`);
      if (!answer.ok) throw new Error(`status ${answer.status}`);
      const html = await answer.text();
      if (html) append(html);
      offset = Number(answer.headers.get("Perfbisect-Next-Offset"));
      complete = answer.headers.get("Perfbisect-Log-Complete") === "true";
      note.textContent = complete ? "The end." : "Following…";
    } catch (error) {
      note.textContent = `The service can't be reached (${error.message}); trying again…`;
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
  }
}

if (view.dataset.top !== "true") view.scrollTop = view.scrollHeight;
follow();
