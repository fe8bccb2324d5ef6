-- Messages as message-db has them: one table, found by id, by stream and by category.

CREATE FUNCTION category(stream text) RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$ SELECT split_part(stream, '-', 1) $$;

-- What tells which member of a consumer group has the stream: the hash modulo the group's size. NULL if it has no id.
CREATE FUNCTION group_hash(stream text) RETURNS bigint
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
	SELECT abs(('x' || left(md5(id), 16))::bit(64)::bigint)
	FROM nullif(split_part(substr(stream, length(split_part(stream, '-', 1)) + 2), '+', 1), '') AS id
	WHERE id IS NOT NULL
$$;

CREATE TABLE messages (
	global_position bigserial PRIMARY KEY,
	id uuid NOT NULL CONSTRAINT messages_id UNIQUE,
	stream_name text NOT NULL,
	type text NOT NULL,
	position bigint NOT NULL,
	data json NOT NULL,
	metadata json,
	time timestamp NOT NULL DEFAULT (now() AT TIME ZONE 'utc'),
	-- Kept, because a read of a group would hash the stream of each message that others get.
	group_hash bigint GENERATED ALWAYS AS (group_hash(stream_name)) STORED,
	CONSTRAINT messages_stream UNIQUE (stream_name, position)
);

CREATE INDEX messages_category ON messages (category(stream_name), global_position);
