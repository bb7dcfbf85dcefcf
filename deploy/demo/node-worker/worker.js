// A Towpath worker that knows only PROTOCOL.md and the official NATS client: pull, work, report,
// wait for the PubAck, ack. Around that, what keeps it well-behaved: in-progress acks, the
// heartbeat request, cancellation, duplicate deliveries, drain, and a connection that comes back.
//
// JSON numbers beyond 2^53 lose digits in JavaScript, so the workflow gives this worker none.
import process from "node:process";
import { connect, headers } from "@nats-io/transport-node";
import { TerminalError, tasks } from "./tasks.js";

const SERVER = process.env.TOWPATH_NATS_URL ?? "nats://127.0.0.1:4222";
const PREFIX = process.env.TOWPATH_PREFIX ?? "towpath";
const WORKER_ID = process.env.DEMO_WORKER_ID ?? `node-${process.pid}`;
const QUEUES = ["inventory", "notify"];
const STREAM = `${PREFIX.toUpperCase()}_DISPATCH`;
// Slots by level (critical, high, normal, low): no level can starve another.
const SLOTS = [1, 1, 8, 2];
const PULL_EXPIRES_MS = 2_000;
const PUBACK_TIMEOUT_MS = 2_000;
const HEARTBEAT_EVERY_MS = 3_000;
const STARTED_AFTER_MS = 500;

let draining = false;
let link = null; // promise of the current client; a closed one is replaced
const running = new Map(); // token -> {queue, acks: reply subject, stop: AbortController}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

function client() {
  link ??= open();
  return link;
}

async function open() {
  try {
    const nc = await connect({
      servers: SERVER,
      name: WORKER_ID,
      maxReconnectAttempts: -1,
      reconnectTimeWait: 250,
      waitOnFirstConnect: true,
      pingInterval: 5_000,
    });
    nc.closed().finally(() => (link = null));
    for (const queue of QUEUES) {
      nc.subscribe(`${PREFIX}.control.${queue}`, { callback: onControl });
    }
    return nc;
  } catch (error) {
    link = null;
    throw error;
  }
}

function onControl(error, message) {
  if (error) return;
  try {
    const { type, token, reason } = message.json();
    if (type === "step.cancel") running.get(token)?.stop.abort(reason);
  } catch {
    // not a command of ours
  }
}

// One pull for one message: a dispatch, or null when there was none in time.
async function pull(queue, level) {
  const nc = await client();
  const subject = `$JS.API.CONSUMER.MSG.NEXT.${STREAM}.${queue}_p${level}`;
  const wanted = JSON.stringify({ batch: 1, expires: PULL_EXPIRES_MS * 1_000_000 });
  // noMux: a delivery keeps its own subject, so it needs an inbox subscription of its own
  const options = { noMux: true, timeout: PULL_EXPIRES_MS + 1_000 };
  const message = await nc.request(subject, wanted, options);
  const status = message.headers?.code ?? 0; // 404 and 408: nothing came; 409: try again
  if (status === 409) await pause(250);
  return status === 0 ? message : null;
}

async function slot(queue, level) {
  while (!draining) {
    try {
      const message = await pull(queue, level);
      if (message !== null) await onDispatch(queue, message);
    } catch {
      await pause(500); // server away, or no consumer yet: the heartbeat asks for one
    }
  }
}

async function onDispatch(queue, message) {
  const dispatch = message.json();
  const known = running.get(dispatch.token);
  if (known) {
    known.acks = message.reply; // delivered again while it runs here: ack the newest delivery
    return;
  }
  const attempt = { queue, acks: message.reply, stop: new AbortController() };
  running.set(dispatch.token, attempt);
  try {
    await work(queue, dispatch, attempt);
  } finally {
    running.delete(dispatch.token);
  }
}

async function work(queue, dispatch, attempt) {
  const giveUpAt = Date.now() + dispatch.attempt_timeout_ms;
  const inProgress = setInterval(() => tell(attempt.acks, "+WPI"), dispatch.ack_wait_ms / 3);
  const started = setTimeout(
    () => report(queue, dispatch, "step-started", {}, Date.now() + PUBACK_TIMEOUT_MS),
    dispatch.heartbeat_timeout_ms === null ? STARTED_AFTER_MS : 0,
  );
  try {
    const [kind, fields] = await outcome(dispatch, attempt.stop.signal);
    clearTimeout(started);
    if (await report(queue, dispatch, kind, fields, giveUpAt)) {
      await tell(attempt.acks, "+ACK"); // only after the report is stored
    }
  } finally {
    clearTimeout(started);
    clearInterval(inProgress);
  }
}

// Acks are fire and forget: a lost one is a redelivery, which the token makes harmless.
async function tell(subject, text) {
  try {
    (await client()).publish(subject, text);
  } catch {
    // the server is away; it delivers again
  }
}

async function outcome(dispatch, signal) {
  if (draining) return ["step-released", { reason: "drain" }];
  const task = tasks[dispatch.task];
  if (!task) return ["step-released", { reason: "unknown_task" }];
  try {
    const output = await task(dispatch.input, { dispatch, signal, workerId: WORKER_ID });
    return ["step-completed", { output: output ?? null }];
  } catch (error) {
    const retryable = !(error instanceof TerminalError);
    const { name: type, message, stack } = error;
    return ["step-failed", { error: { type, message, retryable, stack } }];
  }
}

// Publish until the PubAck comes or the attempt is over; the id makes a repeat harmless.
async function report(queue, dispatch, kind, fields, giveUpAt) {
  const { run_id, step, token, reply } = dispatch;
  const type = kind.replace("-", ".");
  const body = JSON.stringify({ v: 1, type, run_id, step, token, worker_id: WORKER_ID, ...fields });
  const id = headers();
  id.set("Nats-Msg-Id", `${token}:${kind}:${WORKER_ID}`);
  while (Date.now() < giveUpAt) {
    try {
      const nc = await client();
      const subject = `${reply}.${kind}.${queue}.${run_id}.${token}`;
      const ack = await nc.request(subject, body, { headers: id, timeout: PUBACK_TIMEOUT_MS });
      if (!ack.json().error) return true;
    } catch {
      // no answer: the report may or may not be stored
    }
    await pause(250);
  }
  return false;
}

async function heartbeat(queue) {
  const tokens = [...running].filter(([, one]) => one.queue === queue).map(([token]) => token);
  const slots = SLOTS.reduce((sum, one) => sum + one);
  const body = { worker_id: WORKER_ID, tasks: Object.keys(tasks), slots, sdk: "node-demo", tokens };
  const nc = await client();
  const answer = await nc.request(`${PREFIX}.heartbeat.${queue}`, JSON.stringify(body));
  const { cancel = [], stale = [] } = answer.json();
  for (const token of [...cancel, ...stale]) running.get(token)?.stop.abort("cancelled");
}

async function beat() {
  while (!draining) {
    await Promise.allSettled(QUEUES.map(heartbeat)); // a lost one is made up by the next
    await pause(HEARTBEAT_EVERY_MS);
  }
}

process.on("SIGTERM", () => (draining = true));
process.on("SIGINT", () => (draining = true));
if (process.env.DEMO_STOP_WITH_PARENT) {
  process.stdin.resume(); // the pipe closes when the parent is gone, however it went
  process.stdin.on("end", () => process.exit(3));
}
beat();
await Promise.all(
  QUEUES.flatMap((queue) =>
    SLOTS.flatMap((count, level) => Array.from({ length: count }, () => slot(queue, level))),
  ),
);
await (await client()).close();
process.exit(0);
