import { spawn } from "node:child_process";
import type { ChildProcess } from "node:child_process";
import { createInterface } from "node:readline";

/** A server behind a proxy with faults, in a process of its own. */
export class Harness {
  private constructor(
    private readonly process: ChildProcess,
    readonly at: { url: string; direct: string; token: string; control: string },
  ) {}

  /** HOLDFAST_HARNESS is the program of internal/conformance/harness, and HOLDFAST_COMMAND holdfast itself. */
  static async start(): Promise<Harness> {
    const { HOLDFAST_HARNESS: harness, HOLDFAST_COMMAND: command } = process.env;
    if (!harness || !command) throw new Error("run .ci/clients, which builds a server and sets HOLDFAST_HARNESS to it");
    const child = spawn(harness, [command], { stdio: ["pipe", "pipe", "inherit"] });
    for await (const line of createInterface(child.stdout!)) return new Harness(child, JSON.parse(line) as Harness["at"]);
    throw new Error("the harness has not started");
  }

  async do(what: Record<string, unknown>): Promise<unknown> {
    const resp = await fetch(this.at.control, { method: "POST", body: JSON.stringify(what) });
    if (!resp.ok) throw new Error(await resp.text());
    return resp.json();
  }

  async stop(): Promise<void> {
    const ended = new Promise((resolve) => this.process.once("exit", resolve));
    this.process.stdin!.end();
    await ended;
  }
}
