//! A shim of containerd that runs a container, judged by what its process reads. `nri/e2e/run` has the
//! containerd.

use nix::unistd::Pid;
use protobuf::well_known_types::wrappers::Int64Value;
use tokio::time::sleep;
use ttrpc_keepalive::{Call, Client, Support};

use crate::process;
use crate::receipts::{LIMIT, MANY, each_once, judged};
use crate::report::claim;
use crate::service::text;
use crate::{Result, print};

const TASK: &str = "containerd.task.v3.Task";

/// Prints how it is judged, in the columns of the table in `docs/judging.md`.
pub(crate) async fn judge(address: &str, container: &str, pid: &str) -> Result<()> {
    let pid = Pid::from_raw(pid.parse()?);
    let client = connect(address, container).await?;
    let asleep = judged(late(&client, container)).await?;

    let many = connect(address, container).await?;
    let calls: Vec<_> = (0..MANY)
        .map(|_| tokio::spawn(judged(late(&many, container))))
        .collect();
    let burst = each_once(calls).await?;

    let other = connect(address, container).await?;
    let call = tokio::spawn(judged(late(&other, container)));
    sleep(LIMIT / 4).await;
    process::stop(pid).await?;
    let within = call.await??;
    // All that this connection had been sent has been read.
    let before = judged(late(&client, container)).await?;
    process::go_on(pid)?;
    for client in [&client, &other] {
        answers(client, container).await?;
    }
    print(&format!(
        "{asleep} | {burst} | {within} | {before} | answers"
    ));
    Ok(())
}

async fn connect(address: &str, container: &str) -> Result<Client> {
    let client = Client::builder().connect(address).await?;
    answers(&client, container).await?;
    let support = client.snapshot().support();
    claim!(support == Support::No, "support {support:?}");
    Ok(client)
}

/// Asks for the process of the container, whose id is the one field of the request.
async fn answers(client: &Client, container: &str) -> Result<()> {
    let request = text(container);
    let call = client.call::<_, Int64Value>(TASK, "Connect", &request);
    call.await?;
    Ok(())
}

/// Asks for the end of a container that goes on, so that its handler cannot answer in time.
fn late(client: &Client, container: &str) -> Call<Int64Value> {
    let call = client.call::<_, Int64Value>(TASK, "Wait", &text(container));
    call.timeout(LIMIT)
}
