//! How long to wait before the next attempt to connect.

use std::process;
use std::time::Duration;

use crate::seed::seed;

/// The waits of a loop that connects anew when a connection has ended.
///
/// A [`Client`](crate::Client) never reconnects by itself: what has to be registered again, and
/// whether what was on its way may be sent twice, only the application knows. So it owns the loop,
/// and this says how long to wait in it: longer after each attempt that came to nothing, up to a
/// bound, and from the beginning after a connection that lasted. It has no clock and does not sleep,
/// so the loop can wait for other things meanwhile, such as being told to stop.
///
/// ```
/// # use std::time::Duration;
/// # use protobuf::well_known_types::wrappers::StringValue;
/// # use tokio::time::{Instant, sleep};
/// # use ttrpc_keepalive::{Client, Listener, Server, Service};
/// use ttrpc_keepalive::Backoff;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let address = format!("unix://@ttrpc-keepalive-backoff-{}", std::process::id());
/// # let listener = Listener::bind(&address).await?;
/// # let runtime = Service::new("demo.Runtime", ())
/// #     .unary("Register", |(), _, q: StringValue| async move { Ok(q) });
/// # let server = Server::builder().service(runtime).build()?;
/// # let told = server.clone();
/// # tokio::spawn(async move {
/// #     sleep(Duration::from_millis(50)).await;
/// #     told.shutdown(Duration::from_secs(1)).await
/// # });
/// # tokio::spawn(async move { server.serve(listener).await });
/// # let name = StringValue::new();
/// let mut backoff = Backoff::new(Duration::from_millis(10), Duration::from_secs(30)).attempts(3);
/// loop {
///     let mut lived = Duration::ZERO;
///     let builder = Client::builder().call_timeout(Duration::from_secs(2));
///     match builder.connect(&address).await {
///         Ok(client) => {
///             // Everything is new: a call that is made again has its whole time again.
///             let registered = client.call::<_, StringValue>("demo.Runtime", "Register", &name);
///             if registered.await.is_ok() {
///                 let began = Instant::now();
///                 println!("{}", client.closed().await); // the work is done beside this
///                 lived = began.elapsed();
///             }
///         }
///         Err(error) => println!("{error}"),
///     }
///     let Some(wait) = backoff.delay_after(lived) else {
///         break; // three times in a row nobody was there
///     };
///     sleep(wait).await;
/// }
/// # Ok(()) }
/// ```
///
/// `examples/reconnect.rs` is such a loop in full.
#[derive(Clone, Debug)]
pub struct Backoff {
    initial: Duration,
    longest: Duration,
    factor: u32,
    jitter: u8,
    settled_after: Duration,
    attempts: Option<u32>,
    /// How many attempts in a row came to nothing.
    failed: u32,
    next: Duration,
    random: u64,
    /// The process that drew the seed, unless it was given.
    process: Option<u32>,
}

impl Backoff {
    /// Waits that begin at `initial`, double each time, and are never longer than `longest`. Each
    /// is shortened by up to half at random.
    pub fn new(initial: Duration, longest: Duration) -> Self {
        Self {
            initial,
            longest,
            factor: 2,
            jitter: 50,
            settled_after: longest,
            attempts: None,
            failed: 0,
            next: initial,
            random: seed(),
            process: Some(process::id()),
        }
    }

    /// By how much each wait is longer than the one before. 2 by default; 0 counts as 1.
    #[must_use]
    pub fn factor(mut self, factor: u32) -> Self {
        self.factor = factor.max(1);
        self
    }

    /// By up to how much a wait is shortened at random, in percent: 0 to 100, 50 by default, and
    /// what is more counts as 100.
    ///
    /// It keeps many clients of one server, which lose it together, from coming back together.
    #[must_use]
    pub fn jitter(mut self, percent: u8) -> Self {
        self.jitter = percent.min(100);
        self
    }

    /// How long a connection must have lived to count as one that worked, so that the waits begin
    /// anew. The longest wait by default: a server that accepts and closes at once is a failure too.
    #[must_use]
    pub fn settled_after(mut self, lived: Duration) -> Self {
        self.settled_after = lived;
        self
    }

    /// After how many attempts in a row that came to nothing to give up. Never by default.
    #[must_use]
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = Some(attempts);
        self
    }

    /// Makes the random part the same each time, for tests. Otherwise it differs from value to
    /// value.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.random = seed;
        self.process = None;
        self
    }

    /// How long to wait after an attempt whose connection was of use for so long: zero if none was
    /// made. `None` if it is time to give up.
    ///
    /// The time that connecting took does not count: with it an attempt that nobody accepts for
    /// [`connect_timeout`](crate::ClientBuilder::connect_timeout) would be taken for a connection
    /// that lasted.
    pub fn delay_after(&mut self, lived: Duration) -> Option<Duration> {
        if lived >= self.settled_after {
            self.failed = 0;
            self.next = self.initial;
        } else {
            self.failed = self.failed.saturating_add(1);
        }
        if self
            .attempts
            .is_some_and(|attempts| self.failed >= attempts)
        {
            return None;
        }
        let delay = self.next.min(self.longest);
        self.next = delay.saturating_mul(self.factor);
        // In millionths, so that the shortest part of a wait still varies.
        let most = u64::from(self.jitter) * 10_000;
        let part = u32::try_from(self.draw() % (most + 1)).unwrap_or(0);
        Some(delay.saturating_sub(delay / 1_000_000 * part))
    }

    /// The next number of the generator *SplitMix64*: waits need to differ, not to be secret.
    fn draw(&mut self) -> u64 {
        let here = process::id();
        if self.process.is_some_and(|process| process != here) {
            // Forked workers would otherwise all wait as long as their parent.
            self.random = seed();
            self.process = Some(here);
        }
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = self.random;
        let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(1);

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn delays(mut backoff: Backoff, count: usize) -> Vec<Duration> {
        (0..count)
            .map(|_| backoff.delay_after(SHORT).unwrap_or_default())
            .collect()
    }

    #[test]
    fn waits_grow_up_to_the_longest() {
        let plain = Backoff::new(ms(100), ms(1000)).jitter(0);
        assert_eq!(
            delays(plain.clone(), 6),
            [100, 200, 400, 800, 1000, 1000].map(ms)
        );
        assert_eq!(delays(plain.factor(3), 4), [100, 300, 900, 1000].map(ms));
        let steady = Backoff::new(ms(100), ms(1000)).jitter(0).factor(0);
        assert_eq!(delays(steady, 3), [ms(100); 3]);
        let reversed = Backoff::new(ms(100), ms(10)).jitter(0);
        assert_eq!(delays(reversed, 2), [ms(10); 2]);
        let endless = Backoff::new(Duration::MAX, Duration::MAX).jitter(0);
        assert_eq!(delays(endless, 3), [Duration::MAX; 3]);
    }

    #[test]
    fn a_connection_that_lasted_begins_anew_and_a_short_one_does_not() {
        let mut backoff = Backoff::new(ms(100), ms(1000)).jitter(0);
        assert_eq!(backoff.delay_after(ms(0)), Some(ms(100)));
        assert_eq!(backoff.delay_after(ms(999)), Some(ms(200)));
        assert_eq!(backoff.delay_after(ms(1000)), Some(ms(100)));
        let mut backoff = backoff.settled_after(ms(10));
        assert_eq!(backoff.delay_after(ms(9)), Some(ms(200)));
        assert_eq!(backoff.delay_after(ms(10)), Some(ms(100)));
    }

    #[test]
    fn it_gives_up_after_so_many_failures_in_a_row() {
        let mut backoff = Backoff::new(ms(100), ms(1000)).attempts(3);
        assert!(backoff.delay_after(SHORT).is_some());
        assert!(backoff.delay_after(SHORT).is_some());
        assert!(backoff.delay_after(ms(5000)).is_some(), "one that lasted");
        assert!(backoff.delay_after(SHORT).is_some());
        assert!(backoff.delay_after(SHORT).is_some());
        assert_eq!(backoff.delay_after(SHORT), None);
        assert_eq!(backoff.delay_after(SHORT), None);
        let mut once = Backoff::new(SHORT, SHORT).attempts(1);
        assert!(once.delay_after(ms(5000)).is_some(), "it did not fail");
        assert_eq!(once.delay_after(Duration::ZERO), None);
        assert_eq!(
            Backoff::new(SHORT, SHORT).attempts(0).delay_after(SHORT),
            None
        );
    }

    #[test]
    fn a_value_that_a_forked_worker_has_of_its_parent_draws_anew() {
        let mine = Backoff::new(ms(1000), ms(1000));
        let inherited = Backoff {
            process: Some(process::id() ^ 1),
            ..mine.clone()
        };
        assert_eq!(delays(mine.clone(), 9), delays(mine.clone(), 9));
        assert_ne!(delays(mine.clone(), 9), delays(inherited.clone(), 9));
        let (one, other) = (mine.seed(1), inherited.seed(1));
        assert_eq!(
            delays(one, 9),
            delays(other, 9),
            "a seed that was given stays"
        );
    }

    #[test]
    fn chance_shortens_a_wait_by_no_more_than_was_said_and_spreads_it() {
        let backoff = Backoff::new(ms(1000), ms(1000)).jitter(30);
        let drawn = delays(backoff.clone(), 1000);
        assert!(drawn.iter().all(|wait| (ms(700)..=ms(1000)).contains(wait)));
        let (low, high) = (ms(750), ms(950));
        assert!(drawn.iter().any(|wait| *wait < low) && drawn.iter().any(|wait| *wait > high));
        let all = delays(backoff.clone().jitter(200), 1000);
        assert!(all.iter().all(|wait| *wait <= ms(1000)) && all.iter().any(|wait| *wait < ms(50)));

        let (one, other) = (backoff.clone().seed(1), backoff.clone().seed(2));
        assert_eq!(delays(one.clone(), 9), delays(one.clone(), 9));
        assert_ne!(delays(one, 9), delays(other, 9));
        let unlike = Backoff::new(ms(1000), ms(1000)).jitter(30);
        assert_ne!(delays(backoff, 9), delays(unlike, 9));
    }
}
