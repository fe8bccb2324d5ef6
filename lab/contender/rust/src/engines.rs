//! The engines, each as its documentation would have it used, at its defaults but for its memory.

use crate::Error;
use fjall::{KeyspaceCreateOptions, PersistMode};
use redb::{Durability, ReadableDatabase, TableDefinition};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;

/// What a write is to survive.
#[derive(Clone, Copy, PartialEq)]
pub enum Level {
    Memory,
    Process,
    Power,
}

/// One operation of a batch.
#[derive(Clone, Copy)]
pub enum Op<'a> {
    Delete(&'a [u8]),
    Set(&'a [u8], &'a [u8]),
    /// From the first to below the second, to the end if that is empty. Engines do not get it: see flatten.
    DeleteRange(&'a [u8], &'a [u8]),
}

impl<'a> Op<'a> {
    pub fn key(&self) -> &'a [u8] {
        match self {
            Op::Delete(key) | Op::Set(key, _) | Op::DeleteRange(key, _) => key,
        }
    }
}

/// What keys become: a value, or nothing.
type Changes<'a> = BTreeMap<Cow<'a, [u8]>, Option<&'a [u8]>>;

/// What each key becomes by all of the operations: its value, or nothing.
pub fn flatten<'a>(engine: &dyn Engine, ops: &[Op<'a>]) -> Result<Changes<'a>, Error> {
    let mut last = BTreeMap::new();
    for op in ops {
        match *op {
            Op::Delete(key) => drop(last.insert(Cow::Borrowed(key), None)),
            Op::Set(key, value) => drop(last.insert(Cow::Borrowed(key), Some(value))),
            Op::DeleteRange(low, high) => {
                let high = Some(high).filter(|high| !high.is_empty());
                if high.is_some_and(|high| high <= low) {
                    continue;
                }
                for (_, value) in last.range_mut::<[u8], _>(bounds(low, high)) {
                    *value = None;
                }
                engine.scan(low, high, &mut |key, _| {
                    last.insert(Cow::Owned(key.to_vec()), None);
                    true
                })?;
            }
        }
    }
    Ok(last)
}

pub trait Engine {
    /// Whether apply must get no more than one change of a key.
    fn one_change_a_key(&self) -> bool {
        false
    }
    /// Applies all of them, in their order, as one transaction of that level.
    fn apply(&mut self, ops: &[Op], level: Level) -> Result<(), Error>;
    /// Tells the value of each of the keys, all of one state.
    fn get(&self, keys: &[&[u8]], tell: &mut dyn FnMut(Option<&[u8]>)) -> Result<(), Error>;
    /// Tells keys in order with their values, from low on to below high, until it is told to stop.
    fn scan(&self, low: &[u8], high: Option<&[u8]>, tell: Tell) -> Result<(), Error>;
    /// Returns when all that was applied survives power loss.
    fn flush(&mut self) -> Result<(), Error>;
}

/// Is told a key and its value, and says whether to go on.
type Tell<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> bool;

/// What an engine runs with: names and values.
pub type Settings = Vec<(&'static str, String)>;

/// Opens the engine with so many bytes for caches and write buffers, if it can be told.
pub fn open(name: &str, dir: &Path, memory: u64) -> Result<(Box<dyn Engine>, Settings), Error> {
    Ok(match name {
        "redb" => {
            let mut builder = redb::Builder::new();
            builder.set_cache_size(usize::try_from(memory)?);
            (
                Box::new(Redb(builder.create(dir.join("redb"))?)),
                vec![("cache_size", memory.to_string())],
            )
        }
        "fjall" => {
            // 64 MiB is the default of a memtable.
            let memtable = (memory / 4).min(64 << 20);
            let cache = memory - memtable;
            (
                Box::new(Fjall::open(dir, cache, memtable)?),
                vec![
                    ("cache_size", cache.to_string()),
                    ("max_memtable_size", memtable.to_string()),
                    ("manual_journal_persist", true.to_string()),
                ],
            )
        }
        "thunderdb" => {
            let options = thunderdb::DatabaseOptions::default();
            let settings = vec![
                ("memory_budget", "none: all data is in memory".into()),
                ("write_buffer_size", options.write_buffer_size.to_string()),
                ("page_size", format!("{:?}", options.page_size)),
                ("wal_enabled", options.wal_enabled.to_string()),
            ];
            let path = dir.join("thunder.db");
            (
                Box::new(Thunder(thunderdb::Database::open_with_options(path, options)?)),
                settings,
            )
        }
        "null" => (
            Box::new(Null::default()),
            vec![("memory_budget", "none: all data is in memory".into())],
        ),
        _ => return Err(format!("there is no engine {name}").into()),
    })
}

fn bounds<'a>(low: &'a [u8], high: Option<&'a [u8]>) -> (Bound<&'a [u8]>, Bound<&'a [u8]>) {
    (
        Bound::Included(low),
        high.map_or(Bound::Unbounded, Bound::Excluded),
    )
}

struct Redb(redb::Database);

const TABLE: TableDefinition<&[u8], &[u8]> = TableDefinition::new("kv");

impl Redb {
    /// Runs read on the table, if there is one.
    fn read(
        &self,
        read: impl FnOnce(redb::ReadOnlyTable<&[u8], &[u8]>) -> Result<(), Error>,
    ) -> Result<bool, Error> {
        match self.0.begin_read()?.open_table(TABLE) {
            Err(redb::TableError::TableDoesNotExist(_)) => Ok(false),
            table => read(table?).map(|()| true),
        }
    }
}

impl Engine for Redb {
    fn apply(&mut self, ops: &[Op], level: Level) -> Result<(), Error> {
        let mut tx = self.0.begin_write()?;
        tx.set_durability(match level {
            Level::Memory => Durability::None,
            Level::Process | Level::Power => Durability::Immediate,
        })?;
        let mut table = tx.open_table(TABLE)?;
        for op in ops {
            match op {
                Op::Delete(key) => drop(table.remove(key)?),
                Op::Set(key, value) => drop(table.insert(key, value)?),
                Op::DeleteRange(..) => unreachable!(),
            }
        }
        drop(table);
        Ok(tx.commit()?)
    }

    fn get(&self, keys: &[&[u8]], tell: &mut dyn FnMut(Option<&[u8]>)) -> Result<(), Error> {
        let there = self.read(|table| {
            for key in keys {
                tell(table.get(key)?.as_ref().map(|value| value.value()));
            }
            Ok(())
        })?;
        if !there {
            keys.iter().for_each(|_| tell(None));
        }
        Ok(())
    }

    fn scan(&self, low: &[u8], high: Option<&[u8]>, tell: Tell) -> Result<(), Error> {
        self.read(|table| {
            for entry in table.range::<&[u8]>(bounds(low, high))? {
                let (key, value) = entry?;
                if !tell(key.value(), value.value()) {
                    break;
                }
            }
            Ok(())
        })?;
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.apply(&[], Level::Power)
    }
}

struct Fjall {
    db: fjall::Database,
    table: fjall::Keyspace,
}

impl Fjall {
    fn open(dir: &Path, cache: u64, memtable: u64) -> Result<Fjall, Error> {
        // By hand: every batch says itself what it is to survive.
        let db = fjall::Database::builder(dir.join("fjall"))
            .manual_journal_persist(true)
            .cache_size(cache)
            .open()?;
        let table = db.keyspace("kv", || {
            KeyspaceCreateOptions::default().max_memtable_size(memtable)
        })?;
        Ok(Fjall { db, table })
    }
}

impl Engine for Fjall {
    /// All of a batch has one number, so that of two changes of a key either one could win.
    fn one_change_a_key(&self) -> bool {
        true
    }

    fn apply(&mut self, ops: &[Op], level: Level) -> Result<(), Error> {
        let mut batch = self.db.batch().durability(match level {
            Level::Memory => None,
            Level::Process => Some(PersistMode::Buffer),
            Level::Power => Some(PersistMode::SyncData),
        });
        for op in ops {
            match *op {
                Op::Delete(key) => batch.remove(&self.table, key),
                Op::Set(key, value) => batch.insert(&self.table, key, value),
                Op::DeleteRange(..) => unreachable!(),
            }
        }
        Ok(batch.commit()?)
    }

    fn get(&self, keys: &[&[u8]], tell: &mut dyn FnMut(Option<&[u8]>)) -> Result<(), Error> {
        for key in keys {
            tell(self.table.get(key)?.as_deref());
        }
        Ok(())
    }

    fn scan(&self, low: &[u8], high: Option<&[u8]>, tell: Tell) -> Result<(), Error> {
        for entry in self.table.range::<&[u8], _>(bounds(low, high)) {
            let (key, value) = entry.into_inner()?;
            if !tell(&key, &value) {
                break;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Error> {
        Ok(self.db.persist(PersistMode::SyncAll)?)
    }
}

struct Thunder(thunderdb::Database);

impl Engine for Thunder {
    /// Every commit is synced; there is no other way.
    fn apply(&mut self, ops: &[Op], _: Level) -> Result<(), Error> {
        let mut tx = self.0.write_tx();
        for op in ops {
            match op {
                Op::Delete(key) => tx.delete(key),
                Op::Set(key, value) => tx.put(key, value),
                Op::DeleteRange(..) => unreachable!(),
            }
        }
        Ok(tx.commit()?)
    }

    fn get(&self, keys: &[&[u8]], tell: &mut dyn FnMut(Option<&[u8]>)) -> Result<(), Error> {
        let tx = self.0.read_tx();
        for key in keys {
            tell(tx.get_ref(key));
        }
        Ok(())
    }

    fn scan(&self, low: &[u8], high: Option<&[u8]>, tell: Tell) -> Result<(), Error> {
        for (key, value) in self.0.read_tx().range(bounds(low, high)) {
            if !tell(key, value) {
                break;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

/// A map of the standard library, and nothing on disk.
#[derive(Default)]
struct Null(BTreeMap<Vec<u8>, Vec<u8>>);

impl Engine for Null {
    fn apply(&mut self, ops: &[Op], _: Level) -> Result<(), Error> {
        for op in ops {
            match op {
                Op::Delete(key) => drop(self.0.remove(*key)),
                Op::Set(key, value) => drop(self.0.insert(key.to_vec(), value.to_vec())),
                Op::DeleteRange(..) => unreachable!(),
            }
        }
        Ok(())
    }

    fn get(&self, keys: &[&[u8]], tell: &mut dyn FnMut(Option<&[u8]>)) -> Result<(), Error> {
        for key in keys {
            tell(self.0.get(*key).map(Vec::as_slice));
        }
        Ok(())
    }

    fn scan(&self, low: &[u8], high: Option<&[u8]>, tell: Tell) -> Result<(), Error> {
        for (key, value) in self.0.range::<[u8], _>(bounds(low, high)) {
            if !tell(key, value) {
                break;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Error> {
        Ok(())
    }
}
