// What this worker can do. Each effect is written to a log of this process alone, so that the demo
// can count the steps of each worker and show that a repeated attempt has the same idempotency key.
import { appendFileSync } from "node:fs";
import process from "node:process";

export class TerminalError extends Error {}

function named(type, message) {
  const error = new TerminalError(message);
  error.name = type;
  return error;
}

function note(what, context, facts = {}) {
  const file = process.env.DEMO_EFFECTS;
  if (!file) return;
  const { task, attempt, idempotency_key } = context.dispatch;
  const line = { what, task, attempt, idempotency_key, worker_id: context.workerId, ...facts };
  appendFileSync(file, JSON.stringify(line) + "\n");
}

const takes = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

export const tasks = {
  "inventory.reserve": async ({ order_id, line, sku, quantity }, context) => {
    note("begun", context);
    await takes(5);
    if (sku.startsWith("SOLDOUT-")) throw named("OutOfStock", `no ${sku} left`);
    const reservation = `R-${order_id}-${line}`;
    note("done", context, { reservations: [reservation] });
    return { reservation, quantity };
  },

  "inventory.release": async ({ reservation, quantity }, context) => {
    note("begun", context);
    await takes(5);
    if (context.dispatch.attempt === 1 && quantity % 3 === 0) {
      throw new Error("the first attempt was turned away");
    }
    note("done", context, { reservations: [reservation] });
  },

  "mail.notify": async ({ customer, tracking }, context) => {
    note("begun", context);
    await takes(5);
    note("done", context);
    return { message: `Dear ${customer}, your parcel ${tracking} is on its way.` };
  },
};
