//! Counts what a process asks of the allocator and of the kernel, from the order to count on.
//!
//! The counts are taken where every implementation comes by, below all of its code: the global
//! allocator, and the functions of libc that read and write. The path that is counted is the one
//! that is measured. `/proc/self/io` will not do, since it leaves out `recv` and `send`.

#![expect(
    unsafe_code,
    reason = "an allocator and libc's functions cannot be replaced without"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::fmt;
use std::ops::Sub;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};

use libc::{c_int, c_void, iovec, msghdr, size_t, sockaddr, socklen_t, ssize_t};
use nix::sys::resource::{UsageWho, getrusage};

use crate::Result;

static COUNTING: AtomicBool = AtomicBool::new(false);
static ALLOCATIONS: AtomicI64 = AtomicI64::new(0);
static ALLOCATED: AtomicI64 = AtomicI64::new(0);
static FREED: AtomicI64 = AtomicI64::new(0);
static READS: AtomicI64 = AtomicI64::new(0);
static WRITES: AtomicI64 = AtomicI64::new(0);

/// The counts of one process at one moment. Only differences mean something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) allocations: i64,
    /// Bytes.
    pub(crate) allocated: i64,
    /// Bytes allocated and not freed.
    pub(crate) live: i64,
    pub(crate) reads: i64,
    pub(crate) writes: i64,
    pub(crate) page_faults: i64,
    pub(crate) tasks: i64,
}

impl Counts {
    /// Those of this process, which counts from the first time on. Within a runtime.
    pub(crate) fn now() -> Result<Self> {
        COUNTING.store(true, Relaxed);
        let allocated = ALLOCATED.load(Relaxed);
        Ok(Self {
            allocations: ALLOCATIONS.load(Relaxed),
            allocated,
            live: allocated - FREED.load(Relaxed),
            reads: READS.load(Relaxed),
            writes: WRITES.load(Relaxed),
            page_faults: getrusage(UsageWho::RUSAGE_SELF)?.minor_page_faults(),
            tasks: tasks()?,
        })
    }
}

/// How many tasks were spawned so far, this one included. Ids are handed out one by one, which
/// `tokio` does not promise; `tests` holds it to that.
fn tasks() -> Result<i64> {
    Ok(tokio::spawn(async {}).id().to_string().parse()?)
}

impl Sub for Counts {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            allocations: self.allocations - earlier.allocations,
            allocated: self.allocated - earlier.allocated,
            live: self.live - earlier.live,
            reads: self.reads - earlier.reads,
            writes: self.writes - earlier.writes,
            page_faults: self.page_faults - earlier.page_faults,
            // Without the one that told the earlier number.
            tasks: self.tasks - earlier.tasks - 1,
        }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {} {} {} {} {} {}",
            self.allocations,
            self.allocated,
            self.live,
            self.reads,
            self.writes,
            self.page_faults,
            self.tasks
        )
    }
}

impl FromStr for Counts {
    type Err = Box<dyn std::error::Error + Send + Sync>;

    fn from_str(line: &str) -> Result<Self> {
        let numbers: Vec<i64> = line
            .split(' ')
            .map(str::parse)
            .collect::<std::result::Result<_, _>>()?;
        let [
            allocations,
            allocated,
            live,
            reads,
            writes,
            page_faults,
            tasks,
        ] = numbers[..]
        else {
            return Err(format!("not counts: {line}").into());
        };
        Ok(Self {
            allocations,
            allocated,
            live,
            reads,
            writes,
            page_faults,
            tasks,
        })
    }
}

struct Allocator;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

// SAFETY: each function does what the system's allocator does, and that is one.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        allocate(layout.size());
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        allocate(layout.size());
        unsafe { System.alloc_zeroed(layout) }
    }

    /// Counts as an allocation of the new size, because all of it may be copied.
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        allocate(size);
        free(layout.size());
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        free(layout.size());
        unsafe { System.dealloc(pointer, layout) }
    }
}

fn allocate(size: usize) {
    if COUNTING.load(Relaxed) {
        ALLOCATIONS.fetch_add(1, Relaxed);
        ALLOCATED.fetch_add(signed(size), Relaxed);
    }
}

fn free(size: usize) {
    if COUNTING.load(Relaxed) {
        FREED.fetch_add(signed(size), Relaxed);
    }
}

fn signed(size: usize) -> i64 {
    i64::try_from(size).unwrap_or(i64::MAX)
}

/// Defines a function of libc in this program, which the linker then prefers to libc's own, for
/// all code of the program. It counts and makes the system call; `syscall` sets `errno`.
macro_rules! counted {
    ($counter:ident: $($name:ident($($argument:ident: $kind:ty),*) = $number:ident $($rest:expr)*;)*) => {$(
        // SAFETY: has libc's signature and meaning. Nothing here unwinds.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($argument: $kind),*) -> ssize_t {
            if COUNTING.load(Relaxed) {
                $counter.fetch_add(1, Relaxed);
            }
            let taken = unsafe { libc::syscall(libc::$number, $($argument,)* $($rest,)*) };
            ssize_t::try_from(taken).unwrap_or(-1)
        }
    )*};
}

counted! { READS:
    read(file: c_int, buffer: *mut c_void, size: size_t) = SYS_read;
    readv(file: c_int, slices: *const iovec, count: c_int) = SYS_readv;
    recv(socket: c_int, buffer: *mut c_void, size: size_t, flags: c_int) = SYS_recvfrom 0_usize 0_usize;
    recvfrom(
        socket: c_int, buffer: *mut c_void, size: size_t, flags: c_int,
        from: *mut sockaddr, length: *mut socklen_t
    ) = SYS_recvfrom;
    recvmsg(socket: c_int, message: *mut msghdr, flags: c_int) = SYS_recvmsg;
}

counted! { WRITES:
    write(file: c_int, buffer: *const c_void, size: size_t) = SYS_write;
    writev(file: c_int, slices: *const iovec, count: c_int) = SYS_writev;
    send(socket: c_int, buffer: *const c_void, size: size_t, flags: c_int) = SYS_sendto 0_usize 0_usize;
    sendto(
        socket: c_int, buffer: *const c_void, size: size_t, flags: c_int,
        to: *const sockaddr, length: socklen_t
    ) = SYS_sendto;
    sendmsg(socket: c_int, message: *const msghdr, flags: c_int) = SYS_sendmsg;
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::Counts;

    /// One test, because the counts are those of the whole process.
    #[tokio::test]
    async fn what_was_done_is_counted() {
        let (mut here, mut there) = UnixStream::pair().expect("a pair of sockets");
        let mut buffer = [0; 1];
        let before = Counts::now().expect("counts");
        let kept = Vec::<u8>::with_capacity(100_000);
        drop(Vec::<u8>::with_capacity(200_000));
        for _ in 0..10 {
            here.write_all(&[1]).expect("a write");
            there.read_exact(&mut buffer).expect("a read");
            tokio::spawn(async {});
        }
        let counts = Counts::now().expect("counts") - before;
        drop(kept);
        assert!(counts.allocations >= 2, "{counts:?}");
        assert!((300_000..320_000).contains(&counts.allocated), "{counts:?}");
        assert!((100_000..120_000).contains(&counts.live), "{counts:?}");
        assert_eq!((counts.reads, counts.writes, counts.tasks), (10, 10, 10));
    }
}
