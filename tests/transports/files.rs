//! Whose a socket's file is.

use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener as StdListener;
use std::path::Path;

use socket2::{Domain, SockAddr, Type};
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep};
use ttrpc_keepalive::{Client, Listener};

use super::support::*;
use super::{assert_in_use, bind_replacing, io_error, leave_stale, place, serve};

fn names_in(path: &Path) -> usize {
    std::fs::read_dir(path.parent().unwrap()).unwrap().count()
}

#[tokio::test]
async fn an_existing_file_is_refused_unless_it_is_a_stale_socket_and_may_be_replaced() {
    let place = place();
    leave_stale(&place.path);
    assert_in_use(Listener::bind(&place.address).await);

    let serving = serve(bind_replacing(&place.address).await.unwrap());
    let client = Client::builder().connect(&place.address).await.unwrap();
    assert!(say(&client).await.is_ok());
    assert_eq!(names_in(&place.path), 1, "no second name is left");

    // It is not stale any more.
    assert_in_use(bind_replacing(&place.address).await);
    let other = Client::builder().connect(&place.address).await.unwrap();
    assert!(say(&other).await.is_ok() && say(&client).await.is_ok());
    assert_eq!(names_in(&place.path), 1);
    serving.abort();
    assert!(serving.await.is_err());
    assert_eq!(names_in(&place.path), 0, "it removes its own");
}

#[tokio::test]
async fn a_file_that_is_no_stale_socket_is_never_replaced() {
    let place = place();
    std::fs::write(&place.path, "notes").unwrap();
    assert_in_use(bind_replacing(&place.address).await);
    assert_eq!(std::fs::read(&place.path).unwrap(), b"notes");
    std::fs::remove_file(&place.path).unwrap();

    let elsewhere = place.path.with_extension("target");
    leave_stale(&elsewhere);
    std::os::unix::fs::symlink(&elsewhere, &place.path).unwrap();
    assert_in_use(bind_replacing(&place.address).await);
    assert!(elsewhere.exists() && place.path.is_symlink());
    std::fs::remove_file(&place.path).unwrap();

    let _datagrams = std::os::unix::net::UnixDatagram::bind(&place.path).unwrap();
    assert_in_use(bind_replacing(&place.address).await);

    std::fs::remove_file(&place.path).unwrap();
    let full = socket2::Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
    full.bind(&SockAddr::unix(&place.path).unwrap()).unwrap();
    full.listen(0).unwrap();
    let _queued = Client::builder().connect(&place.address).await.unwrap();
    assert_in_use(bind_replacing(&place.address).await);
    assert!(
        std::fs::metadata(&place.path)
            .unwrap()
            .file_type()
            .is_socket()
    );
}

// A server has its name before it listens, and refuses until then.
#[tokio::test]
async fn a_server_that_is_just_starting_is_not_taken_for_stale() {
    let place = place();
    let starting = socket2::Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
    starting
        .bind(&SockAddr::unix(&place.path).unwrap())
        .unwrap();
    let other = tokio::spawn({
        let address = place.address.clone();
        async move { bind_replacing(&address).await }
    });
    sleep(ms(30)).await;
    starting.listen(8).unwrap();
    assert_in_use(other.await.unwrap());
    assert!(Client::builder().connect(&place.address).await.is_ok());
}

// The second name that a file has meanwhile is longer than the first, and a socket's may be no longer.
#[tokio::test]
async fn a_path_of_any_length_that_can_be_bound_can_be_replaced() {
    let place = place();
    let directory = place.path.parent().unwrap();
    // 107 bytes are what a unix socket's address has room for.
    for length in [100, 106, 107, 108] {
        let fill = length - directory.as_os_str().len() - "//s".len();
        let deep = directory.join("d".repeat(fill));
        std::fs::create_dir(&deep).unwrap();
        let path = deep.join("s");
        assert_eq!(path.as_os_str().len(), length);
        let address = format!("unix://{}", path.display());
        if length > 107 {
            let error = bind_replacing(&address).await.unwrap_err();
            assert_eq!(io_error(&error).kind(), ErrorKind::InvalidInput);
            continue;
        }
        leave_stale(&path);
        let serving = serve(bind_replacing(&address).await.unwrap());
        assert_in_use(bind_replacing(&address).await);
        let client = Client::builder().connect(&address).await.unwrap();
        assert!(say(&client).await.is_ok());
        assert_eq!(names_in(&path), 1);
        serving.abort();
    }
}

#[test]
fn of_many_that_replace_one_stale_file_one_wins_and_keeps_it() {
    for round in 0..10 {
        let place = place();
        leave_stale(&place.path);
        let start = std::sync::Barrier::new(8);
        let won: Vec<bool> = std::thread::scope(|scope| {
            let racing: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        let runtime = tokio::runtime::Builder::new_current_thread();
                        let runtime = { runtime }.enable_all().build().unwrap();
                        start.wait();
                        runtime.block_on(async {
                            let bound = bind_replacing(&place.address).await;
                            sleep(ms(150)).await;
                            let reachable = UnixStream::connect(&place.path).await.is_ok();
                            assert!(reachable, "round {round}: the winner has lost its name");
                            // Whoever has won is there until all have looked.
                            start.wait();
                            bound.is_ok()
                        })
                    })
                })
                .collect();
            racing
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        });
        let winners = won.iter().filter(|won| **won).count();
        assert_eq!(winners, 1, "round {round}");
        assert_eq!(names_in(&place.path), 0);
    }
}

#[tokio::test]
async fn a_process_that_was_killed_while_it_replaced_holds_up_the_next_one_for_seconds_only() {
    let place = place();
    leave_stale(&place.path);
    let number = std::fs::metadata(&place.path).unwrap().ino();
    let claim = place.path.with_file_name(format!(".stale-{number:x}"));
    std::fs::hard_link(&place.path, &claim).unwrap();
    let start = Instant::now();
    let _listener = bind_replacing(&place.address).await.unwrap();
    assert!(start.elapsed() >= secs(3) && start.elapsed() < secs(6));
    assert_eq!(names_in(&place.path), 1);
}

#[tokio::test]
async fn a_listener_leaves_a_file_that_has_got_its_name() {
    let place = place();
    let listener = Listener::bind(&place.address).await.unwrap();
    let moved = place.path.with_extension("moved");
    std::fs::rename(&place.path, &moved).unwrap();
    let _successor = StdListener::bind(&place.path).unwrap();
    drop(listener);
    assert!(UnixStream::connect(&place.path).await.is_ok());
    assert!(
        moved.exists(),
        "under another name it is no longer its affair"
    );
}

#[tokio::test]
async fn a_file_gets_its_mode() {
    for mode in [0o600, 0o666] {
        let place = place();
        let listener = Listener::builder().mode(mode);
        let _listener = listener.bind(&place.address).await.unwrap();
        let found = std::fs::metadata(&place.path).unwrap().permissions().mode();
        assert_eq!(found & 0o777, mode);
    }
}
