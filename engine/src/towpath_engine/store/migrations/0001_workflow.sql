-- runs: before the code
-- Workflows, their immutable versions, and the queues that versions or workers named.

CREATE TABLE workflow (
  name text COLLATE "C" PRIMARY KEY,
  newest_version integer NOT NULL,
  CONSTRAINT workflow_name_length CHECK (octet_length(name) BETWEEN 1 AND 64),
  CONSTRAINT workflow_newest_version_not_negative CHECK (newest_version >= 0)
);

CREATE TABLE workflow_version (
  workflow text COLLATE "C" NOT NULL REFERENCES workflow (name),
  version integer NOT NULL,
  fingerprint text COLLATE "C" NOT NULL,
  document bytea NOT NULL,
  created_at timestamptz NOT NULL,
  PRIMARY KEY (workflow, version),
  CONSTRAINT workflow_version_fingerprint_once UNIQUE (workflow, fingerprint),
  CONSTRAINT workflow_version_positive CHECK (version >= 1),
  CONSTRAINT workflow_version_document_size CHECK (octet_length(document) <= 16777216)
);

CREATE TABLE queue (
  name text COLLATE "C" PRIMARY KEY,
  created_at timestamptz NOT NULL,
  CONSTRAINT queue_name_length CHECK (octet_length(name) BETWEEN 1 AND 64)
);
