//! A victim for the crash lab over the crate thunderdb.
//!
//!     victim-thunderdb work  DIR PLAN...    commits the plan's transactions until it is killed
//!     victim-thunderdb check DIR PLAN...    opens what it left and tells what is there
//!
//! PLAN is SEED KEYS PER FROM COUNT [wal]: transaction 1 inserts KEYS keys, every later one overwrites PER of them. `work` begins with
//! transaction FROM, 1 for a new database, and ends after COUNT of them, 0 for never. With `wal` the write-ahead log is on, synced with
//! every commit; without it, everything is at the crate's defaults. Either way its documentation says that what
//! commit() acknowledged survives a power cut.
//!
//! What it tells, one line each on standard output:
//!
//!     ready         the database is open
//!     begin N       transaction N is about to be committed
//!     ack N         commit() of transaction N returned Ok
//!     done          all of COUNT was committed
//!     key K N LEN   check: key K has the value that transaction N gave it, whole, of LEN bytes
//!     bad K LEN     check: key K has a value that no transaction gave it
//!     state N       check: the keys are exactly those after transactions 1..N; then nothing was lost that N covers
//!     state none    check: they are not what they were after any number of transactions: torn, lost or out of order
//!
//! It exits with 0, or with 1 and the error on standard error: for `check`, the database does not open.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use thunderdb::{Database, DatabaseOptions, SyncPolicy};

struct Plan {
    seed: u64,
    keys: u64,
    per: u64,
    from: u64,
    count: u64,
    wal: bool,
}

/// A number from four, by the finalizer of splitmix64.
fn mix(a: u64, b: u64, c: u64) -> u64 {
    let mut x = 0u64;
    for part in [a, b, c] {
        x = (x ^ part).wrapping_add(0x9e37_79b9_7f4a_7c15);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^= x >> 31;
    }
    x
}

impl Plan {
    fn parse(args: &[String]) -> Option<Plan> {
        let wal = args.len() == 6 && args[5] == "wal";
        if args.len() != 5 && !wal {
            return None;
        }
        let mut n = [0u64; 5];
        for (to, arg) in n.iter_mut().zip(args) {
            *to = arg.parse().ok()?;
        }
        let [seed, keys, per, from, count] = n;
        (keys > 0 && from > 0).then_some(Plan {
            seed,
            keys,
            per,
            from,
            count,
            wal,
        })
    }

    /// The keys that transaction n writes; a key may come twice.
    fn keys_of(&self, n: u64) -> Vec<u64> {
        if n == 1 {
            return (0..self.keys).collect();
        }
        (0..self.per)
            .map(|i| mix(self.seed, n, i) % self.keys)
            .collect()
    }

    /// The value that transaction n gives to key k: n, k, and 16 to 255 bytes that follow from both.
    fn value(&self, n: u64, k: u64) -> Vec<u8> {
        let mut v = [n.to_le_bytes(), k.to_le_bytes()].concat();
        let len = 16 + mix(self.seed ^ 1, n, k) % 240;
        v.extend((0..len).map(|i| mix(n, k, i / 8).to_le_bytes()[(i % 8) as usize]));
        v
    }

    fn open(&self, dir: &Path) -> thunderdb::Result<Database> {
        let mut options = DatabaseOptions::default();
        if self.wal {
            options = DatabaseOptions {
                wal_enabled: true,
                wal_sync_policy: SyncPolicy::Immediate,
                ..options
            };
        }
        Database::open_with_options(dir.join("thunder.db"), options)
    }
}

fn name(k: u64) -> String {
    format!("key-{k:08}")
}

/// Tells one line; a supervisor that is gone ends this process.
fn tell(line: String) {
    let mut out = std::io::stdout().lock();
    if out
        .write_all((line + "\n").as_bytes())
        .and_then(|()| out.flush())
        .is_err()
    {
        std::process::exit(1);
    }
}

fn work(dir: &Path, plan: &Plan) -> thunderdb::Result<()> {
    let mut db = plan.open(dir)?;
    tell("ready".into());
    let mut n = plan.from;
    while plan.count == 0 || n < plan.from + plan.count {
        let mut tx = db.write_tx();
        for k in plan.keys_of(n) {
            tx.put(name(k).as_bytes(), &plan.value(n, k));
        }
        tell(format!("begin {n}"));
        tx.commit()?;
        tell(format!("ack {n}"));
        n += 1;
    }
    tell("done".into());
    Ok(())
}

fn check(dir: &Path, plan: &Plan) -> thunderdb::Result<()> {
    let db = plan.open(dir)?;
    tell("ready".into());
    // What each key says of itself: the transaction that wrote it.
    let mut found = BTreeMap::new();
    let mut whole = true;
    let mut lines = String::new();
    for (key, value) in db.read_tx().iter() {
        let key = String::from_utf8_lossy(key).into_owned();
        let n = value.first_chunk().map_or(0, |b| u64::from_le_bytes(*b));
        let k = value
            .get(8..)
            .and_then(|v| v.first_chunk())
            .map_or(u64::MAX, |b| u64::from_le_bytes(*b));
        if k < plan.keys
            && key == name(k)
            && plan.value(n, k) == value
            && plan.keys_of(n).contains(&k)
        {
            lines += &format!("key {key} {n} {}\n", value.len());
            found.insert(k, n);
        } else {
            lines += &format!("bad {} {}\n", key.escape_default(), value.len());
            whole = false;
        }
    }
    tell(lines.trim_end().into());
    // The state after the last transaction that is seen is the only one that it can be.
    let last = found.values().copied().max().unwrap_or(0);
    let mut want = BTreeMap::new();
    for n in 1..=last {
        want.extend(plan.keys_of(n).into_iter().map(|k| (k, n)));
    }
    tell(if whole && found == want {
        format!("state {last}")
    } else {
        "state none".into()
    });
    Ok(())
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let plan = args.get(2..).and_then(Plan::parse);
    let done = match (args.first().map(String::as_str), args.get(1), plan) {
        (Some("work"), Some(dir), Some(plan)) => work(Path::new(dir), &plan),
        (Some("check"), Some(dir), Some(plan)) => check(Path::new(dir), &plan),
        _ => {
            eprintln!("usage: victim-thunderdb work|check DIR SEED KEYS PER FROM COUNT [wal]");
            return ExitCode::FAILURE;
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            eprintln!("{err}");
            ExitCode::FAILURE
        }
    }
}
