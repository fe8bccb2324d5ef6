//! Serves a key-value engine that is written in Rust over its standard input and output, to one client at a time.
//!
//!     holdfast-contender ENGINE DIR MEMORY [new]
//!
//! ENGINE is redb, fjall, thunderdb or null; DIR exists and is the engine's alone; MEMORY is how many bytes its caches
//! and write buffers may have. A second process on DIR waits until the first has ended, however that was killed. With
//! `new`, what is there goes first: some engines cannot open what they did not finish to make.
//!
//! A request is a byte that says what to do, the length of its body in four bytes, little endian, and the body. Each
//! has one answer of the same shape: 0 and the result, or 1 and what failed, in words. Lengths in bodies are varints.
//! The first answer has no request: it says that the engine is open, and is NAME VALUE after NAME VALUE of what it runs
//! with, each behind its length.
//!
//!     a   apply: a byte for the level (1 memory, 2 process, 3 power), then operations one after another:
//!         0 KEY deletes, 1 KEY VALUE sets, 15 LOW HIGH deletes from LOW on to below HIGH, to the end if that is empty;
//!         each string is behind its length. They take effect together.
//!     g   get: KEY after KEY. The answer is for each 0, or 1 and VALUE.
//!     s   scan: a byte that is 1 if there is an upper bound, four bytes that say how much the answer should have,
//!         little endian, the lower bound, and the upper one. The answer is a byte that is 1 if these are the last,
//!         then KEY VALUE after KEY VALUE in order.
//!     f   flush: all that was applied survives power loss when it is answered.
//!     m   metrics: how often the engine has asked the device to keep what it wrote, in eight bytes, little endian.
//!     c   close: as f, and the engine is closed. The process stays until its input ends.
//!
//! The memory and the time that this takes, apart from the engine's own, are what `null` takes.

mod engines;

use engines::{Engine, Level, Op};
use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::os::fd::FromRawFd;
use std::path::Path;
use std::process::ExitCode;

/// What can go wrong, as a sentence.
pub type Error = Box<dyn std::error::Error>;

/// Counts what the engine asks of the device. These take the place of the C library's functions, for the standard
/// library and for all crates that do not make their own system calls.
#[cfg(target_os = "linux")]
mod syncs {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    static COUNT: AtomicU64 = AtomicU64::new(0);

    pub fn count() -> u64 {
        COUNT.load(Relaxed)
    }

    #[no_mangle]
    pub extern "C" fn fsync(fd: libc::c_int) -> libc::c_int {
        COUNT.fetch_add(1, Relaxed);
        unsafe { libc::syscall(libc::SYS_fsync, fd) as libc::c_int }
    }

    #[no_mangle]
    pub extern "C" fn fdatasync(fd: libc::c_int) -> libc::c_int {
        COUNT.fetch_add(1, Relaxed);
        unsafe { libc::syscall(libc::SYS_fdatasync, fd) as libc::c_int }
    }
}

#[cfg(not(target_os = "linux"))]
mod syncs {
    /// Not known.
    pub fn count() -> u64 {
        u64::MAX
    }
}

/// What is left of a request's body.
struct Body<'a>(&'a [u8]);

impl<'a> Body<'a> {
    fn bytes(&mut self, n: usize) -> Result<&'a [u8], Error> {
        let (head, rest) = self.0.split_at_checked(n).ok_or("a request is cut off")?;
        self.0 = rest;
        Ok(head)
    }

    fn byte(&mut self) -> Result<u8, Error> {
        Ok(self.bytes(1)?[0])
    }

    /// A string behind its length.
    fn string(&mut self) -> Result<&'a [u8], Error> {
        let mut n = 0u64;
        for shift in (0..63).step_by(7) {
            let b = self.byte()?;
            n |= u64::from(b & 0x7f) << shift;
            if b < 0x80 {
                return self.bytes(usize::try_from(n)?);
            }
        }
        Err("a length has too many bytes".into())
    }
}

/// Adds a string behind its length.
fn add(to: &mut Vec<u8>, s: &[u8]) {
    let mut n = s.len();
    while n >= 0x80 {
        to.push(n as u8 | 0x80);
        n >>= 7;
    }
    to.push(n as u8);
    to.extend_from_slice(s);
}

fn apply(engine: &mut dyn Engine, mut body: Body) -> Result<(), Error> {
    let level = match body.byte()? {
        1 => Level::Memory,
        2 => Level::Process,
        3 => Level::Power,
        other => return Err(format!("there is no level {other}").into()),
    };
    let (mut ops, mut ranges) = (Vec::new(), false);
    while !body.0.is_empty() {
        ops.push(match body.byte()? {
            0 => Op::Delete(body.string()?),
            1 => Op::Set(body.string()?, body.string()?),
            15 => {
                ranges = true;
                Op::DeleteRange(body.string()?, body.string()?)
            }
            other => return Err(format!("there is no operation {other}").into()),
        });
    }
    let ascending = || ops.windows(2).all(|two| two[0].key() < two[1].key());
    if ranges || engine.one_change_a_key() && !ascending() {
        let last = engines::flatten(engine, &ops)?;
        ops = last
            .iter()
            .map(|(key, value)| match value {
                Some(value) => Op::Set(key, value),
                None => Op::Delete(key),
            })
            .collect();
        return engine.apply(&ops, level);
    }
    engine.apply(&ops, level)
}

fn get(engine: &dyn Engine, mut body: Body, out: &mut Vec<u8>) -> Result<(), Error> {
    let mut keys = Vec::new();
    while !body.0.is_empty() {
        keys.push(body.string()?);
    }
    engine.get(&keys, &mut |value| match value {
        None => out.push(0),
        Some(value) => {
            out.push(1);
            add(out, value);
        }
    })
}

fn scan(engine: &dyn Engine, mut body: Body, out: &mut Vec<u8>) -> Result<(), Error> {
    let bounded = body.byte()? == 1;
    let most = u32::from_le_bytes(body.bytes(4)?.try_into()?) as usize;
    let low = body.string()?;
    let high = bounded.then(|| body.string()).transpose()?;
    let first = out.len();
    out.push(1);
    if high.is_some_and(|high| high <= low) {
        return Ok(()); // some engines panic
    }
    engine.scan(low, high, &mut |key, value| {
        add(out, key);
        add(out, value);
        let more = out.len() < most;
        if !more {
            out[first] = 0; // there may be others
        }
        more
    })
}

/// The file that is locked.
const LOCK: &str = "lock";

fn serve(engine: &str, dir: &Path, memory: &str, new: bool) -> Result<(), Error> {
    let memory = memory.parse()?;
    let lock = File::create(dir.join(LOCK))?;
    lock.lock()?;
    if new {
        for entry in std::fs::read_dir(dir)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                std::fs::remove_dir_all(entry.path())?;
            } else if entry.file_name() != LOCK {
                std::fs::remove_file(entry.path())?;
            }
        }
    }
    // The standard streams of the library are behind locks, and flushed at each end of line.
    let mut input = BufReader::with_capacity(64 << 10, unsafe { File::from_raw_fd(0) });
    let mut output = unsafe { File::from_raw_fd(1) };
    let mut open = match engines::open(engine, dir, memory) {
        Ok((engine, settings)) => {
            let mut out = vec![0; HEAD];
            for (name, value) in settings {
                add(&mut out, name.as_bytes());
                add(&mut out, value.as_bytes());
            }
            answer(&mut output, &mut out, Ok(()))?;
            Some(engine)
        }
        Err(err) => return answer(&mut output, &mut vec![0; HEAD], Err(err)),
    };
    let (mut body, mut out) = (Vec::new(), Vec::new());
    loop {
        let mut head = [0; HEAD];
        match input.read_exact(&mut head) {
            Err(err) if err.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            other => other?,
        }
        body.resize(u32::from_le_bytes(head[1..].try_into()?) as usize, 0);
        input.read_exact(&mut body)?;
        out.clear();
        out.resize(HEAD, 0);
        let Some(engine) = open.as_mut() else {
            answer(&mut output, &mut out, Err("it is closed".into()))?;
            continue;
        };
        let body = Body(&body);
        let result = match head[0] {
            b'a' => apply(engine.as_mut(), body),
            b'g' => get(engine.as_ref(), body, &mut out),
            b's' => scan(engine.as_ref(), body, &mut out),
            b'f' => engine.flush(),
            b'm' => Ok(()),
            b'c' => {
                let flushed = engine.flush();
                open = None;
                flushed
            }
            other => Err(format!("there is no request {other}").into()),
        };
        if matches!(head[0], b'm' | b'c') {
            out.extend_from_slice(&syncs::count().to_le_bytes());
        }
        answer(&mut output, &mut out, result)?;
    }
}

/// The bytes in front of a body.
const HEAD: usize = 5;

/// Sends the answer whose body is in out behind room for the head; that of an error is the error.
fn answer(to: &mut File, out: &mut Vec<u8>, result: Result<(), Error>) -> Result<(), Error> {
    out[0] = 0;
    if let Err(err) = result {
        out.truncate(HEAD);
        out[0] = 1;
        out.extend_from_slice(err.to_string().as_bytes());
    }
    let n = u32::try_from(out.len() - HEAD)?;
    out[1..HEAD].copy_from_slice(&n.to_le_bytes());
    Ok(to.write_all(out)?)
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let (engine, dir, memory, new) = match args[..] {
        [_, engine, dir, memory] => (engine, dir, memory, false),
        [_, engine, dir, memory, "new"] => (engine, dir, memory, true),
        _ => {
            eprintln!("usage: holdfast-contender ENGINE DIR MEMORY [new]");
            return ExitCode::FAILURE;
        }
    };
    match serve(engine, Path::new(dir), memory, new) {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            eprintln!("{err}");
            ExitCode::FAILURE
        }
    }
}
