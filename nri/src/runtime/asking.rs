//! One event for one plugin, and what comes of it.

use std::sync::Arc;

use ttrpc_keepalive::{Call, Code, Decode, Error, LateOutcome};

use super::change::Change;
use super::error::{Absence, EventError};
use super::member::Member;
use super::shared::Shared;
use super::standing::{Standing, fails, fails_without};
use crate::api::{Container, Event, PodSandbox, StateChangeEvent};
use crate::services::PluginClient;

/// An event, while plugin after plugin is asked.
#[derive(Debug)]
pub(super) struct Asking {
    pub(super) event: Event,
    /// It goes on although a required plugin has no part in it.
    exempt: bool,
    /// Who is asked, in order.
    pub(super) members: Vec<Arc<Member>>,
}

impl Shared {
    /// # Errors
    ///
    /// A required plugin has not registered.
    pub(super) fn begin(&self, event: Event, pod: &PodSandbox) -> Result<Asking, EventError> {
        let exempt = self
            .settings
            .exempt
            .as_ref()
            .is_some_and(|exempt| exempt(pod));
        if fails_without(event) && !exempt {
            if let Some((plugin, lost)) = self.missing() {
                let absence = lost.map_or(Absence::NotRegistered, Absence::Gone);
                return Err(EventError::Absent {
                    plugin,
                    event,
                    absence,
                });
            }
        }
        let mut members = self.members();
        members.retain(|member| member.wants(event));
        Ok(Asking {
            event,
            exempt,
            members,
        })
    }

    /// Asks one plugin. `None` if it has no part in the event, and the event goes on without it.
    ///
    /// # Errors
    ///
    /// It answered an error, or has no part in an event that needs it.
    pub(super) async fn ask<R: Decode>(
        &self,
        member: &Arc<Member>,
        asking: &Asking,
        call: impl FnOnce(&PluginClient) -> Call<R>,
    ) -> Result<Option<R>, EventError> {
        let event = asking.event;
        if let Err(absence) = member.admit() {
            return self.without(member, asking, absence);
        }
        let error = match call(&member.plugin).timeout(member.limit).await {
            Ok(answer) => return Ok(Some(answer)),
            Err(error) => Arc::new(error),
        };
        if let Some(status) = error.status() {
            return Err(EventError::Refused {
                plugin: member.name.to_string(),
                event,
                status: status.clone(),
            });
        }
        if error.is_deadline() {
            self.note_late(member, event, &error);
            return self.without(member, asking, Absence::Late(error));
        }
        if error.is_connection() {
            return self.without(member, asking, Absence::Gone(member.end()));
        }
        Err(EventError::Failed {
            plugin: member.name.to_string(),
            event,
            error,
        })
    }

    /// Tells one plugin of what has changed, in the way that it knows.
    ///
    /// # Errors
    ///
    /// As [`ask`](Self::ask).
    pub(super) async fn tell_change<R: Decode>(
        &self,
        member: &Arc<Member>,
        asking: &Asking,
        (pod, container): (&PodSandbox, Option<&Container>),
        call: impl FnOnce(&PluginClient) -> Call<R>,
    ) -> Result<(), EventError> {
        if !member.takes_state_change() {
            match self.ask(member, asking, call).await {
                Err(EventError::Refused { status, .. }) if status.code() == Code::UNIMPLEMENTED => {
                }
                told => return told.map(drop),
            }
            member.use_state_change();
        }
        let mut change = StateChangeEvent::new();
        change.event = asking.event.into();
        change.pod = Some(pod.clone()).into();
        change.container = container.cloned().into();
        let told = self.ask_if_known(member, asking, |plugin| plugin.state_change(&change));
        told.await.map(drop)
    }

    /// As [`ask`](Self::ask), of a plugin that may be told of everything because it did not say what it knows.
    ///
    /// # Errors
    ///
    /// As [`ask`](Self::ask).
    pub(super) async fn ask_if_known<R: Decode>(
        &self,
        member: &Arc<Member>,
        asking: &Asking,
        call: impl FnOnce(&PluginClient) -> Call<R>,
    ) -> Result<Option<R>, EventError> {
        match self.ask(member, asking, call).await {
            Err(EventError::Refused { status, .. })
                if status.code() == Code::UNIMPLEMENTED && member.wants_all() =>
            {
                Ok(None)
            }
            answer => answer,
        }
    }

    /// The event goes on without a plugin, or fails for want of it.
    fn without<R>(
        &self,
        member: &Member,
        asking: &Asking,
        absence: Absence,
    ) -> Result<Option<R>, EventError> {
        // A validator is there to refuse: what it has not seen is not let through.
        let validates = asking.event == Event::VALIDATE_CONTAINER_ADJUSTMENT;
        let required = (validates || self.is_required(&member.name)) && !asking.exempt;
        if fails(asking.event, required, member.policy.fail_request) {
            return Err(EventError::Absent {
                plugin: member.name.to_string(),
                event: asking.event,
                absence,
            });
        }
        Ok(None)
    }

    /// Decides what a late answer means. Nobody is disconnected here.
    fn note_late(&self, member: &Arc<Member>, event: Event, error: &Arc<Error>) {
        let Some(verdict) = error.verdict() else {
            return;
        };
        self.tell(
            &member.name,
            &Change::Late {
                event,
                error: Arc::clone(error),
            },
        );
        let answer = error.late_answer();
        let awaited = answer.is_some();
        let _ = member.decide(|standing, peer| standing.handle_late(verdict, awaited, peer));
        if !matches!(member.standing(), Standing::Aside(_)) {
            return;
        }
        self.tell(&member.name, &Change::SetAside(Some(verdict)));
        let (Some(answer), Some(shared)) = (answer, self.this.upgrade()) else {
            return;
        };
        let member = Arc::clone(member);
        // It ends with the connection at the latest, and there is one for each late event: a plugin that is
        // set aside is sent no more.
        tokio::spawn(async move {
            if let LateOutcome::Answered { after } = answer.await {
                shared.tell(&member.name, &Change::Answered { event, after });
            }
            let _ = member.decide(|standing, peer| standing.handle_answer(peer));
        });
    }
}
