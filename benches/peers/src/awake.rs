//! Cores that never sleep. With one call in flight each core waits for the other; on a host that
//! halts a core which has nothing to do, waking it takes longer than the call.

use std::hint::black_box;
use std::process::Command;

use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;

use crate::Result;
use crate::child;
use crate::pair::Process;

/// Keeps each core awake for as long as it lives, by a process that runs only where no other wants to.
pub(crate) struct Spinners {
    _spinners: Vec<Process>,
}

impl Spinners {
    pub(crate) fn start() -> Result<Self> {
        let cores = sched_getaffinity(Pid::from_raw(0))?;
        let mut spinners = Vec::new();
        for core in 0..CpuSet::count() {
            if cores.is_set(core)? {
                // Of util-linux. With another policy they would take half of each core.
                let mut command = Command::new("chrt");
                command.args(["--idle", "0"]).arg(std::env::current_exe()?);
                spinners.push(Process::start(command, "spin", &[&core.to_string()])?);
            }
        }
        Ok(Self {
            _spinners: spinners,
        })
    }
}

/// Ends with its standard input.
pub(crate) fn spin(core: &str) -> Result<()> {
    child::pin(core.parse()?)?;
    let _orders = child::orders();
    println!("ready");
    loop {
        // Not `spin_loop`: a hypervisor takes a core that pauses for one that waits.
        black_box(());
    }
}
