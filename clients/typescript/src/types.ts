import type { components } from "./api.js";

type Schemas = components["schemas"];

/**
 * What a write survives before it is answered: the end of nothing, of the process, of the machine's power, or of any one
 * machine.
 */
export type Level = "memory" | "process" | "power" | "quorum";

export type Message = Schemas["Message"];
export type NewMessage = Schemas["NewMessage"];
export type Written = Schemas["Written"];
export type Event = Schemas["Event"];
export type NewEvent = Schemas["NewEvent"];
export type Appended = Schemas["Appended"];
export type Task = Schemas["Task"] & { id: string };
export type NewTask = Schemas["NewTask"];
export type Enqueued = Schemas["Enqueued"];
export type Lease = Schemas["Lease"] & { task: Task };
export type LeaseResult = Schemas["LeaseResult"];
export type ClaimTasks = Schemas["ClaimTasks"];
export type Queue = Schemas["Queue"];
export type QueueOptions = Schemas["QueueOptions"];
export type Operation = Schemas["Operation"];
export type OperationResult = Schemas["OperationResult"];
export type Delivery = Schemas["Delivery"];
export type ParkedMessage = Schemas["ParkedMessage"];
export type Subscription = Schemas["Subscription"];
export type Stream = Schemas["Stream"];
export type Category = Schemas["Category"];
export type Retention = Schemas["Retention"];
export type Log = Schemas["Log"];
export type Namespace = Schemas["Namespace"];
export type NewNamespace = Schemas["NewNamespace"];
export type Token = Schemas["Token"];
export type NewToken = Schemas["NewToken"];
export type Server = Schemas["Server"];
export type Problem = Schemas["Problem"];
