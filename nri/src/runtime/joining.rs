//! From registered to served: *Synchronize*, and back to it whenever a plugin has missed something.

use std::pin::pin;
use std::sync::Arc;

use tokio::time::{Instant, timeout};
use ttrpc_keepalive::{Error, Peer, State};

use super::change::Change;
use super::member::Member;
use super::parts::parts;
use super::shared::Shared;
use super::standing::{Standing, Step};
use crate::api::{ContainerUpdate, UpdateContainersRequest};

/// Forgets a plugin however its part ends, a panic of a callback included.
struct Presence<'a> {
    shared: &'a Shared,
    member: Arc<Member>,
}

impl Drop for Presence<'_> {
    fn drop(&mut self) {
        self.member.client().abort();
        self.shared.leave(&self.member);
    }
}

impl Shared {
    /// Brings a plugin in, and back whenever it was set aside, until its connection ends.
    pub(super) async fn accompany(&self, member: Arc<Member>) {
        let presence = Presence {
            shared: self,
            member,
        };
        let member = &presence.member;
        let mut liveness = member.client().liveness();
        member.join.notify_one();
        loop {
            tokio::select! {
                () = member.join.notified() => {
                    if let Err(reason) = self.join(member).await {
                        self.tell(&member.name, &Change::Refused(reason));
                        return;
                    }
                }
                seen = liveness.next() => {
                    let Some(seen) = seen else { return };
                    // In doubt, and not by the watch: a call was late, and whoever made it decides.
                    let suspect = matches!(seen.state(), State::Suspect);
                    if seen.peer() == Peer::Doubtful && !suspect {
                        continue;
                    }
                    let before = member.standing();
                    let step = member.decide(Standing::handle_peer);
                    if step == Step::Evict {
                        return;
                    }
                    self.tell_of_silence(member, before);
                }
            }
        }
    }

    fn tell_of_silence(&self, member: &Member, before: Standing) {
        let now = member.standing();
        match (before, now) {
            (Standing::Serving, Standing::Aside(_)) => {
                self.tell(&member.name, &Change::SetAside(None));
            }
            (Standing::Aside(_), Standing::Serving) => {
                self.tell(&member.name, &Change::Serving);
            }
            _ => {}
        }
    }

    /// Tells a plugin what there is, and has it served if nothing has changed meanwhile.
    ///
    /// That goes on beside the events, and has no limit: one that takes its time, or will never answer, costs
    /// nobody anything, and one that is dead is found by the watch. Only if something has changed is it told
    /// again while events wait, for as long as it may take for one, and only if it has just shown that it
    /// needs less.
    ///
    /// # Errors
    ///
    /// It answers an error, or in a way that the protocol does not know.
    async fn join(&self, member: &Member) -> Result<(), String> {
        // Asked to join once more while it was joining, it is served by now.
        while member.standing() == Standing::Joining {
            let known = self.quiet().await.begun;
            let began = Instant::now();
            let updates = match self.synchronize(member).await {
                Ok(updates) => updates,
                // The watch tells of it.
                Err(Refusal::Gone) => return Ok(()),
                Err(Refusal::Told(reason)) => return Err(reason),
            };
            let took = began.elapsed();
            self.apply(member, updates).await;
            let quiet = self.quiet().await;
            if quiet.begun == known {
                self.serve_from_now(member);
                return Ok(());
            }
            if took > member.limit / 2 {
                continue;
            }
            let mut again = pin!(self.synchronize(member));
            let in_time = timeout(member.limit, &mut again).await;
            if let Ok(Ok(_)) = &in_time {
                self.serve_from_now(member);
            }
            drop(quiet);
            let told = match in_time {
                Ok(told) => told,
                Err(_) => again.await,
            };
            match told {
                Ok(updates) => self.apply(member, updates).await,
                Err(Refusal::Gone) => return Ok(()),
                Err(Refusal::Told(reason)) => return Err(reason),
            }
        }
        Ok(())
    }

    fn serve_from_now(&self, member: &Member) {
        member.handle_joined();
        if member.standing() == Standing::Serving {
            self.tell(&member.name, &Change::Serving);
        }
    }

    /// One whole Synchronize. Yields the updates that the plugin asks for.
    async fn synchronize(&self, member: &Member) -> Result<Vec<ContainerUpdate>, Refusal> {
        let (pods, containers) = match &self.settings.state {
            Some(state) => state().await,
            None => (Vec::new(), Vec::new()),
        };
        let parts = parts(pods, containers);
        for part in &parts {
            let answer = member.plugin.synchronize(part).no_timeout().await;
            let answer = answer.map_err(Refusal::from)?;
            if !part.more {
                return Ok(answer.update);
            }
            // A plugin that does not know parts takes the first for the whole.
            if !answer.more || !answer.update.is_empty() {
                let reason = "it does not take Synchronize in parts".to_owned();
                return Err(Refusal::Told(reason));
            }
        }
        Ok(Vec::new())
    }

    async fn apply(&self, member: &Member, updates: Vec<ContainerUpdate>) {
        if updates.is_empty() {
            return;
        }
        let mut request = UpdateContainersRequest::new();
        request.update = updates;
        if let Err(status) = self.update(&member.name, request).await {
            let plugin = member.name.to_string();
            tracing::warn!(plugin, "its updates after Synchronize failed: {status}");
        }
    }
}

/// Why a plugin has not been synchronized.
enum Refusal {
    /// Its connection has ended.
    Gone,
    /// For a reason of its own.
    Told(String),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        match error.is_connection() {
            true => Self::Gone,
            false => Self::Told(format!("it could not be synchronized: {error}")),
        }
    }
}
