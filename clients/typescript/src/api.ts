// Made by npm run generate, of docs/openapi.json. Do not edit it.

export interface paths {
    "/v1/namespaces": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List namespaces, in the order of their ids
         * @description Needs the role admin in all namespaces.
         */
        get: operations["list-namespaces"];
        put?: never;
        /**
         * Create a namespace
         * @description Its token is told once, in the answer.
         *
         *     Needs the role admin in all namespaces.
         */
        post: operations["create-namespace"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/namespaces/{ns}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Describe a namespace
         * @description Needs the role read in the namespace.
         */
        get: operations["get-namespace"];
        put?: never;
        post?: never;
        /**
         * Delete a namespace with its messages, logs, tasks and tokens
         * @description The answer tells how many messages there were. After an error a part may be gone: delete it again.
         *
         *     Needs the role admin in the namespace.
         */
        delete: operations["delete-namespace"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/namespaces/{ns}/categories": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List categories that have messages
         * @description Needs the role read in the namespace.
         */
        get: operations["list-categories"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/namespaces/{ns}/export": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Export messages with their positions, as lines of JSON
         * @description Needs the role read in the namespace.
         */
        get: operations["export-messages"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/namespaces/{ns}/import": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Import messages with their positions, as lines of JSON
         * @description The lines are those of an export, perhaps compressed by gzip. Every 1000 lines are one commit; an import that has failed can be repeated, since messages that are there are passed over.
         *
         *     Needs the role write in the namespace.
         */
        post: operations["import-messages"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/namespaces/{ns}/leases/complete": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Complete tasks in hand
         * @description What became of each lease is in the answer; one that is lost does not keep the others from being completed.
         *
         *     Needs the role write in the namespace.
         */
        post: operations["complete-tasks"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/namespaces/{ns}/leases/complete-then": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Complete a task, and enqueue those that come next
         * @description Both are one commit: if the lease is lost, nothing is enqueued.
         *
         *     Needs the role write in the namespace.
         */
        post: operations["complete-task-then"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/namespaces/{ns}/leases/fail": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Say that an attempt has failed
         * @description The task is tried again after a while, or is dead if it has used up its attempts.
         *
         *     Needs the role write in the namespace.
         */
        post: operations["fail-task"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/namespaces/{ns}/leases/heartbeat": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Extend leases
         * @description What became of each lease is in the answer: when it ends now, or why it could not be extended.
         *
         *     Needs the role write in the namespace.
         */
        post: operations["heartbeat"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/namespaces/{ns}/leases/output": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Set the output of a task in hand
         * @description Needs the role write in the namespace.
         */
        post: operations["set-task-output"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/namespaces/{ns}/leases/return": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Give back tasks that no worker has seen
         * @description They can be claimed again at once, and the attempt does not count. What became of each lease is in the answer.
         *
         *     Needs the role write in the namespace.
         */
        post: operations["return-tasks"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/namespaces/{ns}/leases/snooze": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Put a task back for a while; the attempt does not count
         * @description Needs the role write in the namespace.
         */
        post: operations["snooze-task"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/namespaces/{ns}/logs": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List the logs of events, with their subscriptions
         * @description Needs the role read in the namespace.
         */
        get: operations["list-logs"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/namespaces/{ns}/logs/{log}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Describe a log, with its subscriptions and snapshots
         * @description Needs the role read in the namespace.
         */
        get: operations["get-log"];
        put?: never;
        post?: never;
        /**
         * Remove a log with all that is kept of it
         * @description Needs the role admin in the namespace.
         */
        delete: operations["delete-log"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/namespaces/{ns}/logs/{log}/events": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Read events
         * @description There are no more for now when a page is empty: large events can make a page end before its limit. A position that is beyond the end, or of another history, is the problem `ahead`.
         *
         *     Needs the role read in the namespace.
         */
        get: operations["read-events"];
        put?: never;
        /**
         * Append events, all or none; the log is made if it is not there
         * @description Either all events have ids or none has. Events with ids are appended once, however often that is repeated, as long as the log remembers the ids: those of the last million positions at least, but not of removed events. A known id with another type or data is 409 `id_taken`.
         *
         *     Needs the role write in the namespace.
         */
        post: operations["append-events"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/namespaces/{ns}/logs/{log}/events/follow": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Follow events as Server-Sent Events: those that are there, then each new one
         * @description Events are `event` (its id is the position to go on from), `bye` when the server stops, and `problem`. The header Last-Event-ID goes before from. The header Holdfast-History of the answer is the history of the ids.
         *
         *     Needs the role read in the namespace.
         */
        get: operations["follow-events"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/namespaces/{ns}/logs/{log}/export": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Export the events of a log with their positions, as lines of JSON
         * @description Needs the role read in the namespace.
         */
        get: operations["export-events"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/namespaces/{ns}/logs/{log}/import": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Import events with their positions, as lines of JSON; the log is made if it is not there
         * @description The lines are those of an export, perhaps compressed by gzip. Positions may have gaps. Up to 1000 lines are one commit; an import that has failed can be repeated, since events that are there are passed over.
         *
         *     Needs the role write in the namespace.
         */
        post: operations["import-events"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/namespaces/{ns}/logs/{log}/offsets/{name}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * How far a subscription of a log has come
         * @description Needs the role read in the namespace.
         */
        get: operations["get-offset"];
        /**
         * Keep how far a subscription of a log has come
         * @description Needs the role write in the namespace.
         */
        put: operations["set-offset"];
        post?: never;
        /**
         * Forget a subscription of a log; it is no error if there is none
         * @description Needs the role write in the namespace.
         */
        delete: operations["delete-offset"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/namespaces/{ns}/logs/{log}/truncate": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Remove events from the front of a log
         * @description Needs the role write in the namespace.
         */
        post: operations["truncate-log"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/namespaces/{ns}/messages": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Read messages of a stream, a category or the namespace
         * @description In the order of positions for a stream, otherwise of global positions. There are no more for now when a page is empty: large messages can make a page end before its limit. A position that is beyond the end, or of another history, is the problem `ahead`.
         *
         *     Needs the role read in the namespace.
         */
        get: operations["read-messages"];
        put?: never;
        /**
         * Write messages to a stream, all or none
         * @description The id of a message is a UUID; whether its letters are capital makes no difference. A write whose messages have ids is done once, however often it is repeated, as long as the messages are there. A known id with another type or data, or in another stream, is 409 `id_taken`. Data and metadata are objects that are at most 1000 deep, a type has at most 65536 bytes. What is to be written to several streams is a transaction.
         *
         *     Needs the role write in the namespace.
         */
        post: operations["write-messages"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/namespaces/{ns}/messages/follow": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Follow messages as Server-Sent Events: those that are there, then each new one
         * @description Events are `message` (its id is the position to go on from), `bye` when the server stops, and `problem`. The header Last-Event-ID goes before from. The header Holdfast-History of the answer is the history of the ids.
         *
         *     Needs the role read in the namespace.
         */
        get: operations["follow-messages"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/namespaces/{ns}/messages/last": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * The last message of a stream
         * @description Needs the role read in the namespace.
         */
        get: operations["last-message"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/namespaces/{ns}/periodic": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List periodic tasks, with their last and next ticks
         * @description Programs that have the store open themselves add them; their next ticks are enqueued while one of these runs.
         *
         *     Needs the role read in the namespace.
         */
        get: operations["list-periodic"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/namespaces/{ns}/positions/{consumer}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * How far a consumer has come
         * @description Needs the role read in the namespace.
         */
        get: operations["get-position"];
        /**
         * Keep how far a consumer has come
         * @description Needs the role write in the namespace.
         */
        put: operations["set-position"];
        post?: never;
        /**
         * Forget a consumer; it is no error if there is none
         * @description Needs the role write in the namespace.
         */
        delete: operations["delete-position"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/namespaces/{ns}/query": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Which tables queries read, and what one may take at most
         * @description Needs the role query in the namespace.
         */
        get: operations["get-query"];
        put?: never;
        /**
         * Ask by SQL what is in a namespace
         * @description The statement is one of SQLite that reads. It sees one state of the namespace, whatever is written meanwhile. The answer is lines of JSON: `{"columns": [...]}`, a list of values for each row, and at the end `{"rows": 2}`, or `{"problem": {...}}` if there are no more because of an error. An answer of CSV has no last line: the connection breaks off after an error. A query that is over a limit is `too_large`, also that of time.
         *
         *     Needs the role query in the namespace.
         */
        post: operations["query"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/namespaces/{ns}/queues": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List queues that have tasks or options, and how they are doing
         * @description Needs the role read in the namespace.
         */
        get: operations["list-queues"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/namespaces/{ns}/queues/{queue}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * How a queue is doing
         * @description Needs the role read in the namespace.
         */
        get: operations["get-queue"];
        /**
         * Set the options of a queue, which need not have tasks yet
         * @description Needs the role write in the namespace.
         */
        put: operations["set-queue"];
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/namespaces/{ns}/queues/{queue}/pause": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Let no task of a queue be claimed; those that run go on
         * @description Needs the role write in the namespace.
         */
        post: operations["pause-queue"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/namespaces/{ns}/queues/{queue}/resume": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * End a pause
         * @description Needs the role write in the namespace.
         */
        post: operations["resume-queue"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/namespaces/{ns}/queues/{queue}/retry": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Let the dead tasks of a queue run again
         * @description Needs the role write in the namespace.
         */
        post: operations["retry-queue"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/namespaces/{ns}/streams": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List streams that have messages, in the order of their names
         * @description Needs the role read in the namespace.
         */
        get: operations["list-streams"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/namespaces/{ns}/streams/{stream}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Describe a stream
         * @description Needs the role read in the namespace.
         */
        get: operations["get-stream"];
        put?: never;
        post?: never;
        /**
         * Remove messages of a stream, or end it for ever
         * @description Without a parameter all messages are removed; the next write goes behind them.
         *
         *     Needs the role write in the namespace.
         */
        delete: operations["remove-messages"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/namespaces/{ns}/streams/{stream}/retention": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Which messages of a stream are kept
         * @description Needs the role read in the namespace.
         */
        get: operations["get-retention"];
        /**
         * Set which messages of a stream are kept
         * @description What is not kept is removed within about a minute.
         *
         *     Needs the role write in the namespace.
         */
        put: operations["set-retention"];
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/namespaces/{ns}/subscriptions": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List subscriptions and how they are doing
         * @description Needs the role read in the namespace.
         */
        get: operations["list-subscriptions"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/namespaces/{ns}/subscriptions/{name}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * How a subscription is doing
         * @description Needs the role read in the namespace.
         */
        get: operations["get-subscription"];
        /**
         * Set what a subscription delivers and how; it is made if it is not there
         * @description Setting the same again changes nothing. Messages that consumers have stay theirs until their leases end. From is where a new subscription begins; it does not move one that is there. The name in the body is ignored.
         *
         *     Needs the role write in the namespace.
         */
        put: operations["set-subscription"];
        post?: never;
        /**
         * Delete a subscription and its parked messages
         * @description Needs the role write in the namespace.
         */
        delete: operations["delete-subscription"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/namespaces/{ns}/subscriptions/{name}/ack": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Acknowledge messages: they are not delivered again
         * @description If some deliveries are lost, that is the error, and it is done with the others.
         *
         *     Needs the role write in the namespace.
         */
        post: operations["ack-messages"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/namespaces/{ns}/subscriptions/{name}/claim": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Claim messages of a subscription, and wait for the first
         * @description Each message goes to one of those who claim, and again until one has acknowledged it. There are none in the answer if none came in time, or the server stops. Whatever number is asked for, they have about 8 MiB of data and metadata at most, or there is one message that is larger. Claim again for more.
         *
         *     Needs the role write in the namespace.
         */
        post: operations["claim-messages"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/namespaces/{ns}/subscriptions/{name}/discard": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Forget parked messages
         * @description Positions at which none is parked are passed over.
         *
         *     Needs the role write in the namespace.
         */
        post: operations["discard-parked"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/namespaces/{ns}/subscriptions/{name}/extend": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Begin leases anew
         * @description If some deliveries are lost, that is the error, and it is done with the others.
         *
         *     Needs the role write in the namespace.
         */
        post: operations["extend-messages"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/namespaces/{ns}/subscriptions/{name}/fail": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Say that messages could not be handled, and why
         * @description They are delivered again after a while, or parked if that was the last attempt. If some deliveries are lost, that is the error, and it is done with the others.
         *
         *     Needs the role write in the namespace.
         */
        post: operations["fail-messages"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/namespaces/{ns}/subscriptions/{name}/park": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Park messages: they are not delivered any more
         * @description If some deliveries are lost, that is the error, and it is done with the others.
         *
         *     Needs the role write in the namespace.
         */
        post: operations["park-messages"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/namespaces/{ns}/subscriptions/{name}/parked": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List parked messages, in the order of their global positions
         * @description Whatever number is asked for, they have about 8 MiB of data and metadata at most, or there is one message that is larger.
         *
         *     Needs the role read in the namespace.
         */
        get: operations["list-parked"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/namespaces/{ns}/subscriptions/{name}/replay": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Deliver parked messages again, as if for the first time
         * @description Positions at which none is parked are passed over.
         *
         *     Needs the role write in the namespace.
         */
        post: operations["replay-parked"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/namespaces/{ns}/subscriptions/{name}/return": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Give back messages that no consumer has seen
         * @description They are delivered again at once, and the attempt does not count. If some deliveries are lost, that is the error, and it is done with the others.
         *
         *     Needs the role write in the namespace.
         */
        post: operations["return-messages"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/namespaces/{ns}/tasks": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List tasks, queue by queue and state by state
         * @description Tasks that change while a list is read page by page may be in it twice or not at all. Whatever number is asked for, they have about 8 MiB of payloads, outputs and failures at most, or there is one task that is larger.
         *
         *     Needs the role read in the namespace.
         */
        get: operations["list-tasks"];
        put?: never;
        /**
         * Enqueue tasks, all or none
         * @description Needs the role write in the namespace.
         */
        post: operations["enqueue-tasks"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/namespaces/{ns}/tasks/claim": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Claim tasks under leases, and wait for the first
         * @description There are none in the answer if none came in time, or the server stops. Whatever number is asked for, they have about 8 MiB of payloads, outputs and failures at most, or there is one task that is larger. Claim again for more.
         *
         *     Needs the role write in the namespace.
         */
        post: operations["claim-tasks"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/namespaces/{ns}/tasks/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Describe a task
         * @description Needs the role read in the namespace.
         */
        get: operations["get-task"];
        put?: never;
        post?: never;
        /**
         * Remove a task that does not run
         * @description Needs the role write in the namespace.
         */
        delete: operations["delete-task"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/namespaces/{ns}/tasks/{id}/cancel": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * End a task that is not finished; cancelling again does nothing
         * @description Needs the role write in the namespace.
         */
        post: operations["cancel-task"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/namespaces/{ns}/tasks/{id}/retry": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Let a dead or cancelled task run again
         * @description Needs the role write in the namespace.
         */
        post: operations["retry-task"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/nodes": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Say which processes are one server, and which of them owns what
         * @description Each process answers what it sees itself. A server that is one process has none to name.
         *
         *     Needs the role read in all namespaces.
         */
        get: operations["get-nodes"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/server": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Describe the server and its engine
         * @description Needs the role read in all namespaces.
         */
        get: operations["get-server"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/server/backup": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * A consistent copy of everything, as a tar of a directory that can be opened
         * @description One backup is made at a time. It is first copied to a directory of the server, which must have room for it, unless link is set: then it is a checkpoint, which shares files with the data. It is there at once, the tar holds what is deleted and not given back yet too, and its values are not read before they are sent. The answer is whole only if the tar is: its end is missing if it broke off.
         *
         *     Needs the role admin in all namespaces.
         */
        get: operations["back-up"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/server/compact": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Give back the space of what was deleted, where the engine does that when asked
         * @description Reads go on; writes may have to wait. One compaction is made at a time.
         *
         *     Needs the role admin in all namespaces.
         */
        post: operations["compact-server"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/server/verify": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Read every key, and check logs and tasks
         * @description What the engine has checksums for is checked by them, with logtree also what no key needs now. Writes go on meanwhile; the answer is about one moment.
         *
         *     Needs the role admin in all namespaces.
         */
        post: operations["verify-server"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/token": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Describe the token that the request is made with
         * @description Needs the role read in the namespace that it is about.
         */
        get: operations["get-token"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/tokens": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List tokens, but for those of namespaces themselves
         * @description Without a namespace, all.
         *
         *     Needs the role admin in the namespace that it is about.
         */
        get: operations["list-tokens"];
        put?: never;
        /**
         * Create a token
         * @description Its secret is told once, in the answer.
         *
         *     Needs the role admin in the namespace that it is about.
         */
        post: operations["create-token"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/tokens/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        /**
         * Revoke a token
         * @description Needs the role admin in the namespace that it is about.
         */
        delete: operations["revoke-token"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/transactions": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Write messages, append events, enqueue and complete tasks, all or nothing
         * @description The operations are done in their order, in one namespace or in several, and are one commit. If one of them is refused, nothing is done, and the answer is that of its single call, with its number in operation. A transaction with ids or leases that is sent again as it was, within a day, is answered with its first results; in any other one, known ids of messages or events are 409 `id_taken`, unless all that it does is to repeat writes and appends. The token must have the role in the namespace of each operation.
         *
         *     Needs the role write in the namespace that it is about.
         */
        post: operations["commit-transaction"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
}
export type webhooks = Record<string, never>;
export interface components {
    schemas: {
        /** @description Append appends events, all or none. */
        Append: {
            /**
             * Format: int64
             * @description `after` is the position that the log must be at; absent for any.
             */
            after?: number | null;
            events: components["schemas"]["NewEvent"][];
        };
        /** @description Appended is where the events of an append are. */
        Appended: {
            /** Format: int64 */
            first: number;
            /** Format: int64 */
            last: number;
            repeated?: boolean;
        };
        /** @description Backup says how far a continuous backup is. */
        Backup: {
            /** Format: int64 */
            bytes: number;
            /**
             * Format: int64
             * @description what the loss of the machine would cost now
             */
            lag_ms: number;
            /**
             * Format: int64
             * @description uploaded since the start
             */
            objects: number;
            /** @description why the last upload failed */
            trouble?: string;
        };
        /** @description Category describes a category. */
        Category: {
            category: string;
            /** Format: int64 */
            messages: number;
            /** Format: int64 */
            streams: number;
        };
        /** @description ClaimMessages claims messages of a subscription. */
        ClaimMessages: {
            /**
             * Format: int64
             * @description 0 means 1; at most 1000, and about 8 MiB, are given
             */
            max?: number | null;
            /**
             * Format: int64
             * @description how long to wait for the first, at most a minute
             */
            wait_ms?: number | null;
        };
        /** @description ClaimTasks claims tasks. */
        ClaimTasks: {
            /** Format: int64 */
            lease_ms?: number | null;
            /**
             * Format: int64
             * @description 0 means 1; at most 1000, and about 8 MiB, are given
             */
            n?: number | null;
            queues?: string[] | null;
            /**
             * Format: int64
             * @description how long to wait for the first, at most a minute
             */
            wait_ms?: number | null;
            worker?: string | null;
        };
        /** @description Cluster is a database of PostgreSQL with spaces in it. */
        Cluster: {
            /** @description without a password */
            address: string;
            /**
             * Format: int64
             * @description how many processes give signs of life in it
             */
            alive: number;
            /**
             * Format: int64
             * @description 0 for the first one, which has the list of namespaces
             */
            cluster: number;
            /**
             * Format: int64
             * @description how long ago it was seen, or for how long it has never been
             */
            seenMs: number;
            /**
             * Format: int64
             * @description how many are in it; 0 while not all processes that live have been given it
             */
            spaces: number;
            trouble?: string;
        };
        /** @description CompleteTask completes one task, and enqueues those that come next in the same commit. */
        CompleteTask: {
            /** @description the task's */
            id: string;
            then?: components["schemas"]["NewTask"][] | null;
            /** Format: int64 */
            token: number;
        };
        /** @description Counted tells how many something was done with. */
        Counted: {
            /** Format: int64 */
            count: number;
        };
        /** @description Counters are an engine's; -1 is what it cannot tell. */
        Counters: {
            /** Format: int64 */
            bytes_written: number;
            /** Format: int64 */
            commits: number;
            /** Format: int64 */
            disk_bytes: number;
            /** Format: int64 */
            files: number;
            /** Format: int64 */
            groups: number;
            /** Format: int64 */
            memory_bytes: number;
            /** Format: int64 */
            stalls: number;
            /**
             * Format: int64
             * @description `standbys` keep up with the engine's data, and a commit at Quorum waits for `standbys_needed` of them.
             */
            standbys: number;
            /** Format: int64 */
            standbys_needed: number;
            /** Format: int64 */
            syncs: number;
        };
        /** @description Deliveries are what was claimed. */
        Deliveries: {
            deliveries: components["schemas"]["Delivery"][];
        };
        /** @description Delivery is a message that a consumer has for the time of its lease. */
        Delivery: {
            /** Format: int64 */
            attempt: number;
            data: {
                [key: string]: unknown;
            };
            /**
             * Format: int64
             * @description in its namespace, from 1
             */
            global: number;
            id: string;
            metadata?: {
                [key: string]: unknown;
            };
            /**
             * Format: int64
             * @description in its stream, from 0
             */
            position: number;
            stream: string;
            /** Format: date-time */
            time: string;
            /** Format: int64 */
            token: number;
            type: string;
        };
        /** @description DeliveryRef names a delivery. */
        DeliveryRef: {
            /** Format: int64 */
            global: number;
            /** Format: int64 */
            token: number;
        };
        /** @description Enqueue adds tasks, all or none. */
        Enqueue: {
            tasks: components["schemas"]["NewTask"][];
        };
        /** @description EnqueueResult is the answer to an Enqueue, in the same order. */
        EnqueueResult: {
            results: components["schemas"]["Enqueued"][];
        };
        /** @description Enqueued is what became of one task of an Enqueue. */
        Enqueued: {
            existing?: boolean;
            id: string;
        };
        /** @description Event is an event of a log. */
        Event: {
            data?: Uint8Array;
            id?: string;
            metadata?: Uint8Array;
            origin?: string;
            /**
             * Format: int64
             * @description from 1
             */
            position: number;
            /** Format: date-time */
            time: string;
            type?: string;
        };
        /** @description Events is a page of events. */
        Events: {
            events: components["schemas"]["Event"][];
            /** @description `history` identifies what positions mean, as in Messages. */
            history: string;
            /**
             * Format: int64
             * @description the position to read on from
             */
            next: number;
        };
        /** @description FailTask says that an attempt has failed. */
        FailTask: {
            dead?: boolean | null;
            failure: components["schemas"]["TaskFailure"];
            /** @description the task's */
            id: string;
            /** Format: int64 */
            retry_in_ms?: number | null;
            /** Format: int64 */
            token: number;
        };
        /** @description Globals name parked messages. */
        Globals: {
            globals: number[];
        };
        /** @description Imported is how an import of messages ended. */
        Imported: {
            /** Format: int64 */
            imported: number;
            /** Format: int64 */
            known: number;
            /** Format: int64 */
            last: number;
        };
        /** @description Lease is the right to work on a task. */
        Lease: {
            task: components["schemas"]["Task"];
            /** Format: int64 */
            token: number;
            /** Format: date-time */
            until: string;
        };
        /** @description LeaseRef names a lease. */
        LeaseRef: {
            /** @description the task's */
            id: string;
            /** Format: int64 */
            token: number;
        };
        /** @description LeaseRefs name leases. */
        LeaseRefs: {
            leases: components["schemas"]["LeaseRef"][];
        };
        /** @description LeaseResult is what became of one lease of several. Code is "" if all is well. */
        LeaseResult: {
            code?: string;
            detail?: string;
            /** Format: date-time */
            until?: string;
        };
        /** @description LeaseResults are in the order of the leases. */
        LeaseResults: {
            results: components["schemas"]["LeaseResult"][];
        };
        /** @description Leases are what was claimed. */
        Leases: {
            leases: components["schemas"]["Lease"][];
        };
        /** @description Log describes a log of events. Subscriptions and Snapshots are told by GET of the one log, not in lists. */
        Log: {
            /** Format: int64 */
            first: number;
            /** Format: int64 */
            last: number;
            name: string;
            snapshots?: components["schemas"]["Subscriber"][];
            subscriptions?: components["schemas"]["Subscriber"][];
        };
        /** @description LogAppend appends events to a log, which is made if it is not there, also for a transaction that is refused. */
        LogAppend: {
            /**
             * Format: int64
             * @description `after` is the position that the log must be at; absent for any.
             */
            after?: number | null;
            events: components["schemas"]["NewEvent"][];
            log: string;
        };
        /** @description Message is a message that is there. */
        Message: {
            data: {
                [key: string]: unknown;
            };
            /**
             * Format: int64
             * @description in its namespace, from 1
             */
            global: number;
            id: string;
            metadata?: {
                [key: string]: unknown;
            };
            /**
             * Format: int64
             * @description in its stream, from 0
             */
            position: number;
            stream: string;
            /** Format: date-time */
            time: string;
            type: string;
        };
        /** @description Messages is a page of messages. */
        Messages: {
            /** @description `history` identifies what positions mean. Who reads on from Next names it, and gets the problem "ahead" if the namespace was put back to a copy meanwhile, has lost its end, or was made anew. */
            history: string;
            messages: components["schemas"]["Message"][];
            /**
             * Format: int64
             * @description `next` is the position to read on from. There are no more for now if Messages is empty.
             */
            next: number;
        };
        /** @description Namespace describes a namespace. */
        Namespace: {
            /** Format: date-time */
            created: string;
            description: string;
            id: string;
            /**
             * Format: int64
             * @description the highest global position, 0 if there is none
             */
            last: number;
            /** Format: int64 */
            messages: number;
            metadata?: {
                [key: string]: unknown;
            };
            /**
             * Format: int64
             * @description `space` is where it lies, of several; lists tell it.
             */
            space?: number;
            /** Format: int64 */
            streams: number;
            /** @description `token` is that of a namespace that has just been created, and never told again. */
            token?: string;
        };
        /** @description NewEvent is an event to be appended, or a line of an import. */
        NewEvent: {
            data?: Uint8Array;
            /** @description `id` is any text of at most 1,024 bytes. An append with it that is repeated is done once, as long as the log remembers it; with another type or data it is refused (id_taken). */
            id?: string | null;
            metadata?: Uint8Array;
            origin?: string | null;
            /**
             * Format: int64
             * @description from 1, in an import; ignored in an append
             */
            position?: number | null;
            /**
             * Format: date-time
             * @description when it happened; absent for the present
             */
            time?: string | null;
            type?: string | null;
        };
        /** @description NewMessage is a message to be written. */
        NewMessage: {
            /** @description an object, at most 1,000 deep */
            data: {
                [key: string]: unknown;
            };
            /**
             * Format: uuid
             * @description `id` is a UUID, 32 hexadecimal digits as 8-4-4-4-12, in which capital letters are the same as small ones. A write with it that is repeated is done once, as long as the message is there; with another type or data it is refused (id_taken). Absent for a new one.
             */
            id?: string | null;
            metadata?: {
                [key: string]: unknown;
            } | null;
            /**
             * Format: date-time
             * @description When it happened; absent for the present. Retention does not go by it.
             */
            time?: string | null;
            /** @description at most 64 KiB */
            type: string;
        };
        /** @description NewNamespace is how a namespace is created. */
        NewNamespace: {
            description?: string | null;
            id: string;
            metadata?: {
                [key: string]: unknown;
            } | null;
        };
        /** @description NewTask is a task to be enqueued. What is absent has its default. */
        NewTask: {
            /** @description ids of tasks that must be completed first */
            after?: string[] | null;
            /**
             * Format: date-time
             * @description `at` is the earliest time at which it may run, `delay_ms` the same from now on; not both.
             */
            at?: string | null;
            /**
             * Format: int64
             * @description `backoff_first_ms` is how long it waits after the first attempt that fails; twice as long after each further one, and `backoff_max_ms` at most.
             */
            backoff_first_ms?: number | null;
            /**
             * Format: int64
             * @description the longest wait between attempts
             */
            backoff_max_ms?: number | null;
            /**
             * Format: int64
             * @description how long to wait before it may run
             */
            delay_ms?: number | null;
            /** @description `id` names the task; without one the server makes an id. */
            id?: string | null;
            /**
             * Format: int64
             * @description `keep_ms` is how long it is kept once it is completed or cancelled: as long as its queue says if it is 0, not at all if it is less.
             */
            keep_ms?: number | null;
            /** @description what the limits by key of its queue count by: a customer */
            key?: string | null;
            /** @description which worker runs it */
            kind: string;
            /**
             * Format: int64
             * @description `max_attempts` is how often it is tried before it is dead; 0 means 25.
             */
            max_attempts?: number | null;
            /** @description at most 1 MiB */
            payload?: Uint8Array;
            /**
             * Format: int32
             * @description higher comes first
             */
            priority?: number | null;
            /** @description "default" if it is absent */
            queue?: string | null;
            /** @description its tasks run one after the other, in the order of enqueueing */
            sequence?: string | null;
            /** @description `unique` lets there be one task at most with this text, in all queues: until it is finished, or for `unique_for_ms` from now on. As long as there is one, enqueueing changes nothing and tells its id. */
            unique?: string | null;
            /**
             * Format: int64
             * @description how long there may be no other; needs Unique
             */
            unique_for_ms?: number | null;
        };
        /** @description NewToken is how a token is created. */
        NewToken: {
            description?: string | null;
            /**
             * Format: date-time
             * @description absent for never
             */
            expires?: string | null;
            namespace: string;
            /** @enum {string} */
            role: "admin" | "write" | "query" | "read";
        };
        /** @description Node is one of several processes. */
        Node: {
            address: string;
            alive: boolean;
            /** @description `clusters` are those in which it gives signs of life, as far as they are seen. */
            clusters: number[];
            /**
             * Format: int64
             * @description of what processes say to each other
             */
            protocol: number;
            /**
             * Format: int64
             * @description how many it owns
             */
            spaces: number;
            version: string;
        };
        /** @description Nodes is what one of several processes sees of all. */
        Nodes: {
            /** @description `clusters` are those of PostgreSQL, in which the spaces are. */
            clusters: components["schemas"]["Cluster"][];
            nodes: components["schemas"]["Node"][];
            /**
             * Format: int64
             * @description how long ago it has seen it, or the cluster that it has not seen for longest
             */
            seenMs: number;
            /** @description the address of the process that says it; "" if it is the only one */
            self: string;
            spaces: components["schemas"]["Space"][];
        };
        /** @description Operation is one of a transaction: it has one of the fields beside Namespace. */
        Operation: {
            /** @description `append` appends events to a log. */
            append?: components["schemas"]["LogAppend"];
            /** @description `complete` completes a task, and enqueues those that come next. If the lease is lost, nothing is done. */
            complete?: components["schemas"]["CompleteTask"];
            /** @description `enqueue` enqueues tasks. */
            enqueue?: components["schemas"]["Enqueue"];
            namespace: string;
            /** @description `write` writes messages to a stream. */
            write?: components["schemas"]["Write"];
        };
        /** @description OperationResult is what became of one operation of a transaction. */
        OperationResult: {
            appended?: components["schemas"]["Appended"];
            /** @description of the tasks of enqueue, or of then in complete */
            enqueued?: components["schemas"]["Enqueued"][];
            written?: components["schemas"]["Written"];
        };
        /** @description ParkedMessage is a message that is not delivered any more. */
        ParkedMessage: {
            /** Format: date-time */
            at: string;
            /** Format: int64 */
            attempts: number;
            data: {
                [key: string]: unknown;
            };
            /**
             * Format: int64
             * @description in its namespace, from 1
             */
            global: number;
            id: string;
            metadata?: {
                [key: string]: unknown;
            };
            /**
             * Format: int64
             * @description in its stream, from 0
             */
            position: number;
            reason: string;
            stream: string;
            /** Format: date-time */
            time: string;
            type: string;
        };
        /** @description Periodic is a periodic task that a program has added to the store. */
        Periodic: {
            /** @description since the store was opened; else by a program that ran before */
            added: boolean;
            /**
             * Format: date-time
             * @description the last tick, or when it was first added
             */
            last: string;
            name: string;
            /** Format: date-time */
            next?: string;
            /**
             * Format: int64
             * @description ticks whose tasks were refused
             */
            refused: number;
        };
        /** @description Position is a consumer's position, or that of a subscription of a log. */
        Position: {
            /** Format: int64 */
            position: number;
        };
        /** @description Problem is the body of an error (RFC 9457, application/problem+json). */
        Problem: {
            /** Format: int64 */
            actual?: number;
            /** @description `code` is the class of the error: one of the codes of package api. */
            code: string;
            detail: string;
            /**
             * Format: int64
             * @description `expected` and Actual are versions, or positions, of a conflict.
             */
            expected?: number;
            /**
             * Format: int64
             * @description `operation` is the operation of a transaction that was refused, counted from 0.
             */
            operation?: number;
            /** @description `request` is the id under which the server's log has more. */
            request?: string;
            /** Format: int64 */
            status: number;
            title: string;
        };
        /** @description Query is a statement of SQL that reads. */
        Query: {
            /** @description `args` are the values of the statement's parameters: a list of them in order, or an object by the names of the parameters. A value is null, true or false (1 or 0), a number, a text, or bytes as {"base64": "AQID"}. */
            args?: unknown[] | {
                [key: string]: unknown;
            } | null;
            /** @description `explain` asks how the statement would be run, instead of its rows. */
            explain?: boolean | null;
            /**
             * @description `format` is "json" (absent means that) or "csv", a line of names and one for each row.
             * @enum {string|null}
             */
            format?: "json" | "csv" | null;
            /**
             * Format: int64
             * @description `memory_bytes` is how much memory SQLite may take for it, to sort, group and join.
             */
            memory_bytes?: number | null;
            /**
             * Format: int64
             * @description `rows` is how many rows it may have.
             */
            rows?: number | null;
            sql: string;
            /**
             * Format: int64
             * @description `time_ms` is how long it may take. If a limit is absent, or more than the server allows, that of the server holds.
             */
            time_ms?: number | null;
        };
        /** @description QueryInfo is what queries may read, and their limits. A limit of 0 is none. */
        QueryInfo: {
            /**
             * Format: int64
             * @description how many run at once; more wait
             */
            at_once: number;
            /**
             * Format: int64
             * @description of SQLite, for one query
             */
            memory_bytes: number;
            /** Format: int64 */
            rows: number;
            tables: components["schemas"]["QueryTable"][];
            /** Format: int64 */
            time_ms: number;
        };
        /** @description QueryLine is a line of the answer to a query that is no row: the first one has columns, the last one rows or problem. Between them, each row is a list of its values: null, a number, a text, or bytes as {"base64": "AQID"}. A number with a point or an exponent is a float, another one an integer; 9e999 is infinite. An answer without a last line broke off. */
        QueryLine: {
            columns?: string[];
            /** @description `problem` is why there are no more. */
            problem?: components["schemas"]["Problem"];
            /**
             * Format: int64
             * @description `rows` is how many there were.
             */
            rows?: number;
        };
        /** @description QueryTable is a table. */
        QueryTable: {
            name: string;
            /** @description of the statement that would create it */
            sql: string;
        };
        /** @description Queue is a queue and how it is doing. */
        Queue: {
            /** @description by state */
            counts: {
                [key: string]: number;
            };
            name: string;
            options: components["schemas"]["QueueOptions"];
            paused: boolean;
        };
        /** @description QueueOptions are the limits of a queue. */
        QueueOptions: {
            /** Format: int64 */
            concurrency?: number | null;
            /** Format: int64 */
            keep_dead_ms?: number | null;
            /** Format: int64 */
            keep_ms?: number | null;
            /** Format: int64 */
            key_concurrency?: number | null;
            /** Format: int64 */
            key_rate_n?: number | null;
            /** Format: int64 */
            key_rate_per_ms?: number | null;
            /** Format: int64 */
            rate_n?: number | null;
            /** Format: int64 */
            rate_per_ms?: number | null;
        };
        /** @description Removed tells how many messages or events were removed. */
        Removed: {
            /** Format: int64 */
            removed: number;
        };
        /** @description Retention says which messages of a stream are kept; 0 is no limit. */
        Retention: {
            /** Format: int64 */
            max_age_ms?: number | null;
            /** Format: int64 */
            max_count?: number | null;
        };
        /** @description Server describes a server. */
        Server: {
            /** @description where there is a continuous one */
            backup?: components["schemas"]["Backup"];
            caveats?: string[];
            counters: components["schemas"]["Counters"];
            engine: string;
            /** @description of writes that name none */
            level: string;
            /** Format: int64 */
            loss_window_ms: number;
            /**
             * Format: int64
             * @description -1 while the data cannot be read
             */
            namespaces: number;
            ready: boolean;
            settings: components["schemas"]["Setting"][];
            /** Format: date-time */
            started: string;
            /** @description what an operator should look at */
            trouble?: string;
            /** @description `unsynced`: a power cut may take the last `loss_window_ms` of acknowledged writes, but for those that named power. */
            unsynced: boolean;
            version: string;
        };
        /** @description Setting is one of an engine's settings, as it was read back. */
        Setting: {
            name: string;
            value: string;
        };
        /** @description Settle says which deliveries are acknowledged, extended, failed or parked. */
        Settle: {
            deliveries: components["schemas"]["DeliveryRef"][];
            /** @description of a failure or of parking */
            reason?: string | null;
        };
        /** @description SnoozeTask puts a task back for a while. */
        SnoozeTask: {
            /** Format: int64 */
            for_ms: number;
            /** @description the task's */
            id: string;
            /** Format: int64 */
            token: number;
        };
        /** @description Space is a part of the data that one process owns at a time. */
        Space: {
            /**
             * Format: int64
             * @description in which it is
             */
            cluster: number;
            /**
             * Format: int64
             * @description how often it was taken
             */
            epoch: number;
            /** @description nobody owns it */
            free: boolean;
            /** @description the owner's machine */
            host: string;
            /** @description the address of a process; "" if it has none */
            owner: string;
            /** Format: int64 */
            space: number;
            /** Format: int64 */
            standbyLag: number;
            /**
             * Format: int64
             * @description `standbys` keep up with it, a commit at Quorum waits for `standbysNeeded` of them, and the one that is furthest behind has `standbyLag` bytes of the log not on its disk. Each is -1 if its owner does not count them, or does not answer.
             */
            standbys: number;
            /** Format: int64 */
            standbysNeeded: number;
            /**
             * Format: int64
             * @description `stillMs` is for how long nothing was heard of its owner, if that is long.
             */
            stillMs?: number;
            /** Format: int64 */
            transactions: number;
        };
        /** @description Stream describes a stream. */
        Stream: {
            /**
             * Format: date-time
             * @description when the last one was written; absent if all were removed
             */
            last?: string;
            stream: string;
            /**
             * Format: int64
             * @description the highest position that a message of it has had
             */
            version: number;
        };
        /** @description Subscriber is a subscription or a snapshot of a log. */
        Subscriber: {
            /** Format: int64 */
            lag: number;
            /** Format: int64 */
            missed?: number;
            name: string;
            /** Format: int64 */
            position: number;
        };
        /** @description Subscription is a consumer group whose members acknowledge messages. */
        Subscription: {
            /** Format: int64 */
            behind?: number | null;
            category?: string | null;
            /**
             * Format: int64
             * @description `done`, Behind, Pending and Parked are how it is doing; ignored in a request.
             */
            done?: number | null;
            /** @description `embedded`: a program has made it that embeds the stores. It alone knows its options, and none are told here. */
            embedded?: boolean | null;
            /** Format: int64 */
            from?: number | null;
            /** Format: int64 */
            lease_ms?: number | null;
            /** Format: int64 */
            max_attempts?: number | null;
            /** @description told in answers; ignored in a request, whose path has it */
            name?: string | null;
            /** Format: int64 */
            parked?: number | null;
            /** Format: int64 */
            pending?: number | null;
            prefix?: string | null;
            types?: string[] | null;
            /** Format: int64 */
            window?: number | null;
        };
        /** @description Task is what is known of a task. */
        Task: {
            /** @description ids of tasks that must be completed first */
            after?: string[];
            /**
             * Format: date-time
             * @description `at` is the earliest time at which it may run, `delay_ms` the same from now on; not both.
             */
            at?: string;
            /** Format: int64 */
            attempt: number;
            /**
             * Format: int64
             * @description `backoff_first_ms` is how long it waits after the first attempt that fails; twice as long after each further one, and `backoff_max_ms` at most.
             */
            backoff_first_ms?: number;
            /**
             * Format: int64
             * @description the longest wait between attempts
             */
            backoff_max_ms?: number;
            /** Format: date-time */
            created: string;
            /**
             * Format: int64
             * @description how long to wait before it may run
             */
            delay_ms?: number;
            /** Format: date-time */
            due?: string;
            failures?: components["schemas"]["TaskFailure"][];
            /** Format: date-time */
            finished?: string;
            /** @description `id` names the task; without one the server makes an id. */
            id?: string;
            /**
             * Format: int64
             * @description `keep_ms` is how long it is kept once it is completed or cancelled: as long as its queue says if it is 0, not at all if it is less.
             */
            keep_ms?: number;
            /** @description what the limits by key of its queue count by: a customer */
            key?: string;
            /** @description which worker runs it */
            kind: string;
            /** Format: date-time */
            lease_until?: string;
            /**
             * Format: int64
             * @description `max_attempts` is how often it is tried before it is dead; 0 means 25.
             */
            max_attempts?: number;
            output?: Uint8Array;
            /** @description at most 1 MiB */
            payload?: Uint8Array;
            /**
             * Format: int32
             * @description higher comes first
             */
            priority?: number;
            /** @description "default" if it is absent */
            queue?: string;
            /** @description its tasks run one after the other, in the order of enqueueing */
            sequence?: string;
            /** Format: date-time */
            started?: string;
            state: string;
            /** @description `unique` lets there be one task at most with this text, in all queues: until it is finished, or for `unique_for_ms` from now on. As long as there is one, enqueueing changes nothing and tells its id. */
            unique?: string;
            /**
             * Format: int64
             * @description how long there may be no other; needs Unique
             */
            unique_for_ms?: number;
            worker?: string;
        };
        /** @description TaskFailure is why an attempt failed. */
        TaskFailure: {
            /** Format: int64 */
            attempt?: number | null;
            message: string;
            stack?: string | null;
            /** Format: date-time */
            time?: string | null;
        };
        /** @description TaskOutput sets the output of a task in hand. */
        TaskOutput: {
            /** @description the task's */
            id: string;
            output: Uint8Array;
            /** Format: int64 */
            token: number;
        };
        /** @description Tasks is a page of tasks. */
        Tasks: {
            /** @description the cursor of the next page, "" if there is none */
            next?: string;
            tasks: components["schemas"]["Task"][];
        };
        /** @description Token describes a token. */
        Token: {
            /** Format: date-time */
            created: string;
            description?: string;
            /** Format: date-time */
            expires?: string;
            id: string;
            /** @description "*" for all */
            namespace: string;
            /** @description `role` is "admin", which may do everything, "write" or "query", or "read", whose rights all have. */
            role: string;
            /** @description `secret` is what clients send; it is told once, when the token is created. */
            secret?: string;
        };
        /** @description Transaction is a list of operations that are done in their order, all or none. Each sees what those before it have done. */
        Transaction: {
            /** @description at most 1,000 */
            operations: components["schemas"]["Operation"][];
        };
        /** @description TransactionResult is the answer to a Transaction, in the same order. */
        TransactionResult: {
            /** @description `repeated` says that the transaction was done before: nothing was done now, and the results are those of the first time. */
            repeated?: boolean;
            results: components["schemas"]["OperationResult"][];
        };
        /** @description Truncate removes events below a position. */
        Truncate: {
            /** Format: int64 */
            before: number;
        };
        /** @description Verified is what a verification has found. */
        Verified: {
            /** Format: int64 */
            bytes: number;
            /** Format: int64 */
            keys: number;
            problems: string[];
        };
        /** @description Write writes messages to a stream. */
        Write: {
            /**
             * Format: int64
             * @description `expected` is the version that the stream must have, -1 if it must not be there; absent for any.
             */
            expected?: number | null;
            messages: components["schemas"]["NewMessage"][];
            stream: string;
        };
        /** @description Written is where the messages of a Write are, in a row. */
        Written: {
            /**
             * Format: int64
             * @description of the first
             */
            global: number;
            /**
             * Format: int64
             * @description of the first
             */
            position: number;
            repeated?: boolean;
            stream: string;
        };
    };
    responses: never;
    parameters: never;
    requestBodies: never;
    headers: never;
    pathItems: never;
}
export type $defs = Record<string, never>;
export interface operations {
    "list-namespaces": {
        parameters: {
            query?: {
                /** @description The last id of the page before. */
                after?: string;
                /** @description How many namespaces at most: 1000 if absent, never more than 10000. */
                limit?: number;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Namespace"][];
                };
            };
            /** @description `bad_request` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "create-namespace": {
        parameters: {
            query?: never;
            header?: {
                /** @description What the write is to survive before it is answered; the server's level if it is absent. */
                "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NewNamespace"];
            };
        };
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    /** @description What it was given. */
                    "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Namespace"];
                };
            };
            /** @description `bad_request`, `level` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `exists` */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_large` */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable`, `poisoned` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `full` */
            507: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "get-namespace": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The namespace. */
                ns: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Namespace"];
                };
            };
            /** @description `bad_request` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `no_namespace` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "delete-namespace": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The namespace. */
                ns: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Removed"];
                };
            };
            /** @description `bad_request` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `no_namespace` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_large` */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "list-categories": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The namespace. */
                ns: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Category"][];
                };
            };
            /** @description `bad_request` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `no_namespace` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "export-messages": {
        parameters: {
            query?: {
                /** @description Messages of these categories only; may be repeated. */
                category?: string[];
                /** @description Messages only that were written at this time or later. */
                since?: string;
                /** @description Messages only that were written before this time. */
                until?: string;
                /** @description Compress them; the type of the answer is application/gzip then. */
                gzip?: boolean;
            };
            header?: never;
            path: {
                /** @description The namespace. */
                ns: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/gzip": string;
                    "application/x-ndjson": string;
                };
            };
            /** @description `bad_request` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `no_namespace` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "import-messages": {
        parameters: {
            query?: never;
            header?: {
                /** @description What the write is to survive before it is answered; the server's level if it is absent. */
                "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
            };
            path: {
                /** @description The namespace. */
                ns: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/x-ndjson": string;
            };
        };
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    /** @description What it was given. */
                    "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Imported"];
                };
            };
            /** @description `bad_request`, `level` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `no_namespace` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `position_taken`, `id_taken`, `ended` */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable`, `poisoned` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `full` */
            507: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "complete-tasks": {
        parameters: {
            query?: never;
            header?: {
                /** @description What the write is to survive before it is answered; the server's level if it is absent. */
                "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
            };
            path: {
                /** @description The namespace. */
                ns: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["LeaseRefs"];
            };
        };
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    /** @description What it was given. */
                    "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["LeaseResults"];
                };
            };
            /** @description `bad_request`, `level` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `no_namespace` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_large` */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable`, `poisoned` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `full` */
            507: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "complete-task-then": {
        parameters: {
            query?: never;
            header?: {
                /** @description What the write is to survive before it is answered; the server's level if it is absent. */
                "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
            };
            path: {
                /** @description The namespace. */
                ns: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["CompleteTask"];
            };
        };
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    /** @description What it was given. */
                    "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["EnqueueResult"];
                };
            };
            /** @description `bad_request`, `level` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `no_namespace`, `not_found` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `exists`, `state`, `lease_lost`, `cancelled` */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_large` */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable`, `poisoned` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `full` */
            507: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "fail-task": {
        parameters: {
            query?: never;
            header?: {
                /** @description What the write is to survive before it is answered; the server's level if it is absent. */
                "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
            };
            path: {
                /** @description The namespace. */
                ns: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["FailTask"];
            };
        };
        responses: {
            /** @description Done. */
            204: {
                headers: {
                    /** @description What it was given. */
                    "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description `bad_request`, `level` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `no_namespace` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `lease_lost`, `cancelled` */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_large` */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable`, `poisoned` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `full` */
            507: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    heartbeat: {
        parameters: {
            query?: never;
            header?: {
                /** @description What the write is to survive before it is answered; the server's level if it is absent. */
                "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
            };
            path: {
                /** @description The namespace. */
                ns: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["LeaseRefs"];
            };
        };
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    /** @description What it was given. */
                    "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["LeaseResults"];
                };
            };
            /** @description `bad_request`, `level` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `no_namespace` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_large` */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable`, `poisoned` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `full` */
            507: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "set-task-output": {
        parameters: {
            query?: never;
            header?: {
                /** @description What the write is to survive before it is answered; the server's level if it is absent. */
                "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
            };
            path: {
                /** @description The namespace. */
                ns: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["TaskOutput"];
            };
        };
        responses: {
            /** @description Done. */
            204: {
                headers: {
                    /** @description What it was given. */
                    "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description `bad_request`, `level` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `no_namespace` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `lease_lost`, `cancelled` */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_large` */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable`, `poisoned` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `full` */
            507: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "return-tasks": {
        parameters: {
            query?: never;
            header?: {
                /** @description What the write is to survive before it is answered; the server's level if it is absent. */
                "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
            };
            path: {
                /** @description The namespace. */
                ns: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["LeaseRefs"];
            };
        };
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    /** @description What it was given. */
                    "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["LeaseResults"];
                };
            };
            /** @description `bad_request`, `level` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `no_namespace` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_large` */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable`, `poisoned` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `full` */
            507: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "snooze-task": {
        parameters: {
            query?: never;
            header?: {
                /** @description What the write is to survive before it is answered; the server's level if it is absent. */
                "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
            };
            path: {
                /** @description The namespace. */
                ns: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["SnoozeTask"];
            };
        };
        responses: {
            /** @description Done. */
            204: {
                headers: {
                    /** @description What it was given. */
                    "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description `bad_request`, `level` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `no_namespace` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `lease_lost`, `cancelled` */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_large` */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable`, `poisoned` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `full` */
            507: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "list-logs": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The namespace. */
                ns: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Log"][];
                };
            };
            /** @description `bad_request` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `no_namespace` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "get-log": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The namespace. */
                ns: string;
                /** @description The log. */
                log: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Log"];
                };
            };
            /** @description `bad_request` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `no_namespace`, `not_found` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "delete-log": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The namespace. */
                ns: string;
                /** @description The log. */
                log: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description `bad_request` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `no_namespace`, `not_found` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_large` */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "read-events": {
        parameters: {
            query?: {
                /** @description What history was, in the answer that the position is from; absent to check the position alone. */
                history?: string;
                /** @description The first position; absent or 0 for the first that is there. */
                from?: number;
                /** @description How many events at most: 1000 if absent, never more than 10000. */
                limit?: number;
            };
            header?: never;
            path: {
                /** @description The namespace. */
                ns: string;
                /** @description The log. */
                log: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Events"];
                };
            };
            /** @description `bad_request` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `no_namespace`, `not_found` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `ahead` */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `truncated` */
            410: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "append-events": {
        parameters: {
            query?: never;
            header?: {
                /** @description What the write is to survive before it is answered; the server's level if it is absent. */
                "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
            };
            path: {
                /** @description The namespace. */
                ns: string;
                /** @description The log. */
                log: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Append"];
            };
        };
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    /** @description What it was given. */
                    "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Appended"];
                };
            };
            /** @description `bad_request`, `level` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `no_namespace` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `conflict`, `id_taken` */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_large` */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable`, `poisoned` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `full` */
            507: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "follow-events": {
        parameters: {
            query?: {
                /** @description What history was, in the answer that the position is from; absent to check the position alone. */
                history?: string;
                /** @description The first position; less than 0 means those only that are new. */
                from?: number;
            };
            header?: never;
            path: {
                /** @description The namespace. */
                ns: string;
                /** @description The log. */
                log: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Each event's data are one of these. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/event-stream": components["schemas"]["Event"];
                };
            };
            /** @description `bad_request` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `no_namespace`, `not_found` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `ahead` */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `truncated` */
            410: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "export-events": {
        parameters: {
            query?: {
                /** @description Compress them; the type of the answer is application/gzip then. */
                gzip?: boolean;
            };
            header?: never;
            path: {
                /** @description The namespace. */
                ns: string;
                /** @description The log. */
                log: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/gzip": string;
                    "application/x-ndjson": string;
                };
            };
            /** @description `bad_request` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `no_namespace`, `not_found` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "import-events": {
        parameters: {
            query?: never;
            header?: {
                /** @description What the write is to survive before it is answered; the server's level if it is absent. */
                "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
            };
            path: {
                /** @description The namespace. */
                ns: string;
                /** @description The log. */
                log: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/x-ndjson": string;
            };
        };
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    /** @description What it was given. */
                    "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Imported"];
                };
            };
            /** @description `bad_request`, `level` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `no_namespace` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `position_taken` */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `truncated` */
            410: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable`, `poisoned` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `full` */
            507: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "get-offset": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The namespace. */
                ns: string;
                /** @description The log. */
                log: string;
                /** @description The subscription. */
                name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Position"];
                };
            };
            /** @description `bad_request` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `no_namespace`, `not_found` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "set-offset": {
        parameters: {
            query?: never;
            header?: {
                /** @description What the write is to survive before it is answered; the server's level if it is absent. */
                "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
            };
            path: {
                /** @description The namespace. */
                ns: string;
                /** @description The log. */
                log: string;
                /** @description The subscription. */
                name: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Position"];
            };
        };
        responses: {
            /** @description Done. */
            204: {
                headers: {
                    /** @description What it was given. */
                    "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description `bad_request`, `level` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `no_namespace`, `not_found` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `ahead` */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_large` */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable`, `poisoned` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `full` */
            507: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "delete-offset": {
        parameters: {
            query?: never;
            header?: {
                /** @description What the write is to survive before it is answered; the server's level if it is absent. */
                "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
            };
            path: {
                /** @description The namespace. */
                ns: string;
                /** @description The log. */
                log: string;
                /** @description The subscription. */
                name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            204: {
                headers: {
                    /** @description What it was given. */
                    "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description `bad_request`, `level` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `no_namespace`, `not_found` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_large` */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable`, `poisoned` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `full` */
            507: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "truncate-log": {
        parameters: {
            query?: never;
            header?: {
                /** @description What the write is to survive before it is answered; the server's level if it is absent. */
                "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
            };
            path: {
                /** @description The namespace. */
                ns: string;
                /** @description The log. */
                log: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Truncate"];
            };
        };
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    /** @description What it was given. */
                    "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Removed"];
                };
            };
            /** @description `bad_request`, `level` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `no_namespace`, `not_found` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `ahead` */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_large` */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable`, `poisoned` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `full` */
            507: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "read-messages": {
        parameters: {
            query?: {
                /** @description Messages of this stream; not with category. */
                stream?: string;
                /** @description Messages of this category; without it and stream, of the namespace. */
                category?: string;
                /** @description Messages of these types only; may be repeated. */
                type?: string[];
                /** @description Messages of streams only whose names begin with this. */
                prefix?: string;
                /** @description Messages only whose metadata name a stream of this category as correlationStreamName. */
                correlation?: string;
                /** @description Which member of a consumer group reads, from 0. */
                member?: number;
                /** @description How many members the consumer group has; 0 is no group. */
                size?: number;
                /** @description What history was, in the answer that the position is from; absent to check the position alone. */
                history?: string;
                /** @description The first position: in the stream for one, else the global one. */
                from?: number;
                /** @description How many messages at most: 1000 if absent, never more than 10000. */
                limit?: number;
            };
            header?: never;
            path: {
                /** @description The namespace. */
                ns: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Messages"];
                };
            };
            /** @description `bad_request` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `no_namespace` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `ahead` */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "write-messages": {
        parameters: {
            query?: never;
            header?: {
                /** @description What the write is to survive before it is answered; the server's level if it is absent. */
                "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
            };
            path: {
                /** @description The namespace. */
                ns: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Write"];
            };
        };
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    /** @description What it was given. */
                    "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Written"];
                };
            };
            /** @description `bad_request`, `level` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `no_namespace` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `conflict`, `id_taken`, `ended` */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_large` */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable`, `poisoned` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `full` */
            507: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "follow-messages": {
        parameters: {
            query?: {
                /** @description Messages of this stream; not with category. */
                stream?: string;
                /** @description Messages of this category; without it and stream, of the namespace. */
                category?: string;
                /** @description Messages of these types only; may be repeated. */
                type?: string[];
                /** @description Messages of streams only whose names begin with this. */
                prefix?: string;
                /** @description Messages only whose metadata name a stream of this category as correlationStreamName. */
                correlation?: string;
                /** @description Which member of a consumer group reads, from 0. */
                member?: number;
                /** @description How many members the consumer group has; 0 is no group. */
                size?: number;
                /** @description What history was, in the answer that the position is from; absent to check the position alone. */
                history?: string;
                /** @description The first position, as in reading; less than 0 means those only that are new. */
                from?: number;
            };
            header?: never;
            path: {
                /** @description The namespace. */
                ns: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Each event's data are one of these. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/event-stream": components["schemas"]["Message"];
                };
            };
            /** @description `bad_request` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `no_namespace` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `ahead` */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "last-message": {
        parameters: {
            query: {
                /** @description The stream. */
                stream: string;
                /** @description The last one of this type. */
                type?: string;
            };
            header?: never;
            path: {
                /** @description The namespace. */
                ns: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Message"];
                };
            };
            /** @description `bad_request` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `no_namespace`, `not_found` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "list-periodic": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The namespace. */
                ns: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Periodic"][];
                };
            };
            /** @description `bad_request` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `no_namespace` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "get-position": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The namespace. */
                ns: string;
                /** @description The consumer. */
                consumer: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Position"];
                };
            };
            /** @description `bad_request` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `no_namespace`, `not_found` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "set-position": {
        parameters: {
            query?: never;
            header?: {
                /** @description What the write is to survive before it is answered; the server's level if it is absent. */
                "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
            };
            path: {
                /** @description The namespace. */
                ns: string;
                /** @description The consumer. */
                consumer: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Position"];
            };
        };
        responses: {
            /** @description Done. */
            204: {
                headers: {
                    /** @description What it was given. */
                    "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description `bad_request`, `level` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `no_namespace` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `ahead` */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_large` */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable`, `poisoned` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `full` */
            507: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "delete-position": {
        parameters: {
            query?: never;
            header?: {
                /** @description What the write is to survive before it is answered; the server's level if it is absent. */
                "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
            };
            path: {
                /** @description The namespace. */
                ns: string;
                /** @description The consumer. */
                consumer: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            204: {
                headers: {
                    /** @description What it was given. */
                    "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description `bad_request`, `level` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `no_namespace` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_large` */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable`, `poisoned` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `full` */
            507: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "get-query": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The namespace. */
                ns: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["QueryInfo"];
                };
            };
            /** @description `bad_request` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `no_namespace` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `not_implemented` */
            501: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    query: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The namespace. */
                ns: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Query"];
            };
        };
        responses: {
            /** @description Some of its lines are these. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/x-ndjson": components["schemas"]["QueryLine"];
                    "text/csv": string;
                };
            };
            /** @description `bad_request` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `no_namespace` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_large` */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `not_implemented` */
            501: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "list-queues": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The namespace. */
                ns: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Queue"][];
                };
            };
            /** @description `bad_request` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `no_namespace` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "get-queue": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The namespace. */
                ns: string;
                /** @description The queue. */
                queue: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Queue"];
                };
            };
            /** @description `bad_request` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `no_namespace`, `not_found` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "set-queue": {
        parameters: {
            query?: never;
            header?: {
                /** @description What the write is to survive before it is answered; the server's level if it is absent. */
                "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
            };
            path: {
                /** @description The namespace. */
                ns: string;
                /** @description The queue. */
                queue: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["QueueOptions"];
            };
        };
        responses: {
            /** @description Done. */
            204: {
                headers: {
                    /** @description What it was given. */
                    "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description `bad_request`, `level` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `no_namespace` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_large` */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable`, `poisoned` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `full` */
            507: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "pause-queue": {
        parameters: {
            query?: never;
            header?: {
                /** @description What the write is to survive before it is answered; the server's level if it is absent. */
                "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
            };
            path: {
                /** @description The namespace. */
                ns: string;
                /** @description The queue. */
                queue: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            204: {
                headers: {
                    /** @description What it was given. */
                    "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description `bad_request`, `level` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `no_namespace` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_large` */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable`, `poisoned` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `full` */
            507: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "resume-queue": {
        parameters: {
            query?: never;
            header?: {
                /** @description What the write is to survive before it is answered; the server's level if it is absent. */
                "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
            };
            path: {
                /** @description The namespace. */
                ns: string;
                /** @description The queue. */
                queue: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            204: {
                headers: {
                    /** @description What it was given. */
                    "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description `bad_request`, `level` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `no_namespace`, `not_found` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_large` */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable`, `poisoned` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `full` */
            507: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "retry-queue": {
        parameters: {
            query?: never;
            header?: {
                /** @description What the write is to survive before it is answered; the server's level if it is absent. */
                "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
            };
            path: {
                /** @description The namespace. */
                ns: string;
                /** @description The queue. */
                queue: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    /** @description What it was given. */
                    "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Counted"];
                };
            };
            /** @description `bad_request`, `level` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `no_namespace`, `not_found` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_large` */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable`, `poisoned` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `full` */
            507: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "list-streams": {
        parameters: {
            query?: {
                /** @description Streams only whose names begin with this. */
                prefix?: string;
                /** @description The last name of the page before. */
                after?: string;
                /** @description How many streams at most: 1000 if absent, never more than 10000. */
                limit?: number;
            };
            header?: never;
            path: {
                /** @description The namespace. */
                ns: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Stream"][];
                };
            };
            /** @description `bad_request` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `no_namespace` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "get-stream": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The namespace. */
                ns: string;
                /** @description The stream. */
                stream: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Stream"];
                };
            };
            /** @description `bad_request` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `no_namespace`, `not_found` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "remove-messages": {
        parameters: {
            query?: {
                /** @description Remove only what comes before this position. */
                before?: number;
                /** @description End the stream: nobody can write to it again. */
                tombstone?: boolean;
            };
            header?: {
                /** @description What the write is to survive before it is answered; the server's level if it is absent. */
                "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
            };
            path: {
                /** @description The namespace. */
                ns: string;
                /** @description The stream. */
                stream: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    /** @description What it was given. */
                    "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Removed"];
                };
            };
            /** @description `bad_request`, `level` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `no_namespace` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_large` */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable`, `poisoned` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `full` */
            507: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "get-retention": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The namespace. */
                ns: string;
                /** @description The stream. */
                stream: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Retention"];
                };
            };
            /** @description `bad_request` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `no_namespace` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "set-retention": {
        parameters: {
            query?: never;
            header?: {
                /** @description What the write is to survive before it is answered; the server's level if it is absent. */
                "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
            };
            path: {
                /** @description The namespace. */
                ns: string;
                /** @description The stream. */
                stream: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Retention"];
            };
        };
        responses: {
            /** @description Done. */
            204: {
                headers: {
                    /** @description What it was given. */
                    "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description `bad_request`, `level` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `no_namespace` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_large` */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable`, `poisoned` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `full` */
            507: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "list-subscriptions": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The namespace. */
                ns: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Subscription"][];
                };
            };
            /** @description `bad_request` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `no_namespace` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "get-subscription": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The namespace. */
                ns: string;
                /** @description The subscription. */
                name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Subscription"];
                };
            };
            /** @description `bad_request` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `no_namespace`, `not_found` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "set-subscription": {
        parameters: {
            query?: never;
            header?: {
                /** @description What the write is to survive before it is answered; the server's level if it is absent. */
                "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
            };
            path: {
                /** @description The namespace. */
                ns: string;
                /** @description The subscription. */
                name: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Subscription"];
            };
        };
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    /** @description What it was given. */
                    "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Subscription"];
                };
            };
            /** @description `bad_request`, `level` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `no_namespace` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `ahead` */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_large` */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable`, `poisoned` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `full` */
            507: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "delete-subscription": {
        parameters: {
            query?: never;
            header?: {
                /** @description What the write is to survive before it is answered; the server's level if it is absent. */
                "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
            };
            path: {
                /** @description The namespace. */
                ns: string;
                /** @description The subscription. */
                name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            204: {
                headers: {
                    /** @description What it was given. */
                    "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description `bad_request`, `level` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `no_namespace`, `not_found` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_large` */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable`, `poisoned` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `full` */
            507: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "ack-messages": {
        parameters: {
            query?: never;
            header?: {
                /** @description What the write is to survive before it is answered; the server's level if it is absent. */
                "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
            };
            path: {
                /** @description The namespace. */
                ns: string;
                /** @description The subscription. */
                name: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Settle"];
            };
        };
        responses: {
            /** @description Done. */
            204: {
                headers: {
                    /** @description What it was given. */
                    "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description `bad_request`, `level` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `no_namespace`, `not_found` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `lease_lost` */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_large` */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable`, `poisoned` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `full` */
            507: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "claim-messages": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The namespace. */
                ns: string;
                /** @description The subscription. */
                name: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ClaimMessages"];
            };
        };
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Deliveries"];
                };
            };
            /** @description `bad_request` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `no_namespace`, `not_found` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_large` */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "discard-parked": {
        parameters: {
            query?: never;
            header?: {
                /** @description What the write is to survive before it is answered; the server's level if it is absent. */
                "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
            };
            path: {
                /** @description The namespace. */
                ns: string;
                /** @description The subscription. */
                name: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Globals"];
            };
        };
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    /** @description What it was given. */
                    "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Counted"];
                };
            };
            /** @description `bad_request`, `level` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `no_namespace`, `not_found` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_large` */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable`, `poisoned` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `full` */
            507: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "extend-messages": {
        parameters: {
            query?: never;
            header?: {
                /** @description What the write is to survive before it is answered; the server's level if it is absent. */
                "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
            };
            path: {
                /** @description The namespace. */
                ns: string;
                /** @description The subscription. */
                name: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Settle"];
            };
        };
        responses: {
            /** @description Done. */
            204: {
                headers: {
                    /** @description What it was given. */
                    "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description `bad_request`, `level` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `no_namespace`, `not_found` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `lease_lost` */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_large` */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable`, `poisoned` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `full` */
            507: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "fail-messages": {
        parameters: {
            query?: never;
            header?: {
                /** @description What the write is to survive before it is answered; the server's level if it is absent. */
                "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
            };
            path: {
                /** @description The namespace. */
                ns: string;
                /** @description The subscription. */
                name: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Settle"];
            };
        };
        responses: {
            /** @description Done. */
            204: {
                headers: {
                    /** @description What it was given. */
                    "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description `bad_request`, `level` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `no_namespace`, `not_found` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `lease_lost` */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_large` */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable`, `poisoned` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `full` */
            507: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "park-messages": {
        parameters: {
            query?: never;
            header?: {
                /** @description What the write is to survive before it is answered; the server's level if it is absent. */
                "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
            };
            path: {
                /** @description The namespace. */
                ns: string;
                /** @description The subscription. */
                name: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Settle"];
            };
        };
        responses: {
            /** @description Done. */
            204: {
                headers: {
                    /** @description What it was given. */
                    "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description `bad_request`, `level` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `no_namespace`, `not_found` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `lease_lost` */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_large` */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable`, `poisoned` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `full` */
            507: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "list-parked": {
        parameters: {
            query?: {
                /** @description The last global position of the page before. */
                after?: number;
                /** @description How many messages at most: 1000 if absent, never more than 10000. */
                limit?: number;
            };
            header?: never;
            path: {
                /** @description The namespace. */
                ns: string;
                /** @description The subscription. */
                name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ParkedMessage"][];
                };
            };
            /** @description `bad_request` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `no_namespace`, `not_found` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "replay-parked": {
        parameters: {
            query?: never;
            header?: {
                /** @description What the write is to survive before it is answered; the server's level if it is absent. */
                "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
            };
            path: {
                /** @description The namespace. */
                ns: string;
                /** @description The subscription. */
                name: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Globals"];
            };
        };
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    /** @description What it was given. */
                    "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Counted"];
                };
            };
            /** @description `bad_request`, `level` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `no_namespace`, `not_found` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_large` */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable`, `poisoned` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `full` */
            507: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "return-messages": {
        parameters: {
            query?: never;
            header?: {
                /** @description What the write is to survive before it is answered; the server's level if it is absent. */
                "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
            };
            path: {
                /** @description The namespace. */
                ns: string;
                /** @description The subscription. */
                name: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Settle"];
            };
        };
        responses: {
            /** @description Done. */
            204: {
                headers: {
                    /** @description What it was given. */
                    "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description `bad_request`, `level` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `no_namespace`, `not_found` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `lease_lost` */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_large` */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable`, `poisoned` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `full` */
            507: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "list-tasks": {
        parameters: {
            query?: {
                /** @description Tasks of this queue only. */
                queue?: string;
                /** @description Tasks in this state only. */
                state?: "waiting" | "scheduled" | "blocked" | "running" | "completed" | "cancelled" | "dead";
                /** @description What the page before has as next. */
                cursor?: string;
                /** @description How many tasks at most: 100 if absent, never more than 1000. */
                limit?: number;
            };
            header?: never;
            path: {
                /** @description The namespace. */
                ns: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Tasks"];
                };
            };
            /** @description `bad_request` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `no_namespace`, `not_found` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "enqueue-tasks": {
        parameters: {
            query?: never;
            header?: {
                /** @description What the write is to survive before it is answered; the server's level if it is absent. */
                "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
            };
            path: {
                /** @description The namespace. */
                ns: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Enqueue"];
            };
        };
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    /** @description What it was given. */
                    "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["EnqueueResult"];
                };
            };
            /** @description `bad_request`, `level` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `no_namespace`, `not_found` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `exists`, `state` */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_large` */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable`, `poisoned` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `full` */
            507: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "claim-tasks": {
        parameters: {
            query?: never;
            header?: {
                /** @description What the write is to survive before it is answered; the server's level if it is absent. */
                "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
            };
            path: {
                /** @description The namespace. */
                ns: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ClaimTasks"];
            };
        };
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    /** @description What it was given. */
                    "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Leases"];
                };
            };
            /** @description `bad_request`, `level` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `no_namespace` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_large` */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable`, `poisoned` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `full` */
            507: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "get-task": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The namespace. */
                ns: string;
                /** @description The task's id. */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Task"];
                };
            };
            /** @description `bad_request` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `no_namespace`, `not_found` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "delete-task": {
        parameters: {
            query?: never;
            header?: {
                /** @description What the write is to survive before it is answered; the server's level if it is absent. */
                "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
            };
            path: {
                /** @description The namespace. */
                ns: string;
                /** @description The task's id. */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            204: {
                headers: {
                    /** @description What it was given. */
                    "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description `bad_request`, `level` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `no_namespace`, `not_found` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `state`, `exists` */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_large` */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable`, `poisoned` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `full` */
            507: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "cancel-task": {
        parameters: {
            query?: never;
            header?: {
                /** @description What the write is to survive before it is answered; the server's level if it is absent. */
                "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
            };
            path: {
                /** @description The namespace. */
                ns: string;
                /** @description The task's id. */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            204: {
                headers: {
                    /** @description What it was given. */
                    "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description `bad_request`, `level` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `no_namespace`, `not_found` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `state`, `exists` */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_large` */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable`, `poisoned` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `full` */
            507: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "retry-task": {
        parameters: {
            query?: never;
            header?: {
                /** @description What the write is to survive before it is answered; the server's level if it is absent. */
                "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
            };
            path: {
                /** @description The namespace. */
                ns: string;
                /** @description The task's id. */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            204: {
                headers: {
                    /** @description What it was given. */
                    "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description `bad_request`, `level` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `no_namespace`, `not_found` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `state`, `exists` */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_large` */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable`, `poisoned` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `full` */
            507: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "get-nodes": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Nodes"];
                };
            };
            /** @description `bad_request` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "get-server": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Server"];
                };
            };
            /** @description `bad_request` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "back-up": {
        parameters: {
            query?: {
                /** @description Make it of hard links, on engines that can: logtree and Pebble. */
                link?: boolean;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/x-tar": string;
                };
            };
            /** @description `bad_request` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `locked` */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `not_implemented` */
            501: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `full` */
            507: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "compact-server": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description `bad_request` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `locked` */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_large` */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `not_implemented` */
            501: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `full` */
            507: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "verify-server": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Verified"];
                };
            };
            /** @description `bad_request` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_large` */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "get-token": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Token"];
                };
            };
            /** @description `bad_request` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "list-tokens": {
        parameters: {
            query?: {
                /** @description Tokens of this namespace only, * for those that are good for all. */
                namespace?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Token"][];
                };
            };
            /** @description `bad_request` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "create-token": {
        parameters: {
            query?: never;
            header?: {
                /** @description What the write is to survive before it is answered; the server's level if it is absent. */
                "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NewToken"];
            };
        };
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    /** @description What it was given. */
                    "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Token"];
                };
            };
            /** @description `bad_request`, `level` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `no_namespace` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_large` */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable`, `poisoned` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `full` */
            507: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "revoke-token": {
        parameters: {
            query?: never;
            header?: {
                /** @description What the write is to survive before it is answered; the server's level if it is absent. */
                "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
            };
            path: {
                /** @description The token's id. */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            204: {
                headers: {
                    /** @description What it was given. */
                    "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description `bad_request`, `level` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `not_found` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_large` */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable`, `poisoned` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `full` */
            507: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "commit-transaction": {
        parameters: {
            query?: never;
            header?: {
                /** @description What the write is to survive before it is answered; the server's level if it is absent. */
                "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Transaction"];
            };
        };
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    /** @description What it was given. */
                    "Holdfast-Level"?: "memory" | "process" | "power" | "quorum";
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["TransactionResult"];
                };
            };
            /** @description `bad_request`, `level` */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unauthorized` */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `forbidden` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `no_namespace`, `not_found` */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `conflict`, `id_taken`, `ended`, `exists`, `state`, `lease_lost`, `cancelled` */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_large` */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `encoding` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many` */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `internal`, `corrupt` */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `stopping`, `fenced`, `unavailable`, `poisoned` */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `full` */
            507: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
}
