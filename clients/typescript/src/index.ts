/**
 * A client of a Holdfast server.
 *
 * @packageDocumentation
 */
export { Client, Log, Namespace, Subscription, Tasks } from "./client.js";
export type { DeliveryRef, LeaseRef, MessageQuery } from "./client.js";
export { Follower } from "./follow.js";
export { StillRunningError, TaskRun, Worker, WorkerStoppingError, dead, retryIn, snooze } from "./worker.js";
export type { Handler, WorkerOptions } from "./worker.js";
export { fromJSON, json, newId } from "./bytes.js";
export type { CallOptions, Options } from "./transport.js";
export * from "./errors.js";
export type * from "./types.js";
export type { components, operations, paths } from "./api.js";
