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

const UNITS = [["d", 86400, "h", 3600], ["h", 3600, "m", 60], ["m", 60, "s", 1]];

// As the server writes durations: two units at most.
function duration(seconds) {
  for (const [large, size, small, part] of UNITS) {
    if (seconds < size) continue;
    const rounded = Math.round(seconds / part) * part;
    const left = (rounded % size) / part;
    return `${Math.floor(rounded / size)}${large}${left ? `${left}${small}` : ""}`;
  }
  return `${Math.round(seconds)}s`;
}

async function showProgress() {
  const place = document.getElementById("build-progress");
  if (!place) return;
  const answer = await fetch(place.dataset.url);
  const progress = answer.ok ? (await answer.json()).progress : null;
  const shown = place.querySelector("[data-build-progress]");
  shown.hidden = !progress;
  if (!progress) return;
  const left = progress.seconds_left;
  shown.querySelector("progress").value = progress.share;
  shown.querySelector("span").textContent =
    `${progress.done.toLocaleString("en")} of ${progress.total.toLocaleString("en")} steps` +
    (left === null ? "" : `, about ${duration(left)} left`);
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
      await showProgress();
    } catch (error) {
      note.textContent = `The service can't be reached (${error.message}); trying again…`;
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
  }
}

if (view.dataset.top !== "true") view.scrollTop = view.scrollHeight;
follow();
