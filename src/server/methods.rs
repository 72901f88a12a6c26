//! The table of a server's methods.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use super::handler::Handler;
use super::method::Method;
use crate::status::{Code, Status};
use crate::text;

/// The methods of a server, in the order of their names: comparing is cheaper, for the few that there
/// are, than hashing what a peer has sent.
#[derive(Default)]
pub(super) struct Methods(Vec<(Arc<Method>, Handler)>);

impl Methods {
    pub(super) fn add(&mut self, method: Method, handler: Handler) {
        if let Err(place) = self.place(method.service.as_bytes(), method.name.as_bytes()) {
            self.0.insert(place, (Arc::new(method), handler));
        }
    }

    /// The place of a method in the table. Looked for at `last` first, that of the call before: clients
    /// tend to call one method. Names are compared as the bytes that came, and those which are the same
    /// need no look at whether they are a text.
    pub(super) fn find(&self, last: usize, service: &[u8], name: &[u8]) -> Option<usize> {
        let is_last = |(method, _): &(Arc<Method>, Handler)| {
            method.name.as_bytes() == name && method.service.as_bytes() == service
        };
        if self.0.get(last).is_some_and(is_last) {
            return Some(last);
        }
        self.place(service, name).ok()
    }

    /// What to answer for a method that is not in the table. RFC KA-49.
    pub(super) fn refusal(&self, service: &str, name: &str) -> Status {
        // The names are the peer's, and may be as long as a frame.
        let is_served = self.0.iter().any(|(method, _)| method.service == service);
        let (service, name) = (text::name(service), text::name(name));
        let message = if is_served {
            format!("service {service:?} has no method {name:?}")
        } else {
            format!("service {service:?} is not served here")
        };
        Status::new(Code::UNIMPLEMENTED, message)
    }

    pub(super) fn get(&self, place: usize) -> &(Arc<Method>, Handler) {
        &self.0[place]
    }

    /// Where the method is, or would be.
    fn place(&self, service: &[u8], name: &[u8]) -> Result<usize, usize> {
        let order = |(method, _): &(Arc<Method>, Handler)| {
            let names = method.name.as_bytes().cmp(name);
            match method.service.as_bytes().cmp(service) {
                Ordering::Equal => names,
                services => services,
            }
        };
        self.0.binary_search_by(order)
    }
}

/// By their full names, each with what is set for it.
impl fmt::Debug for Methods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries = self.0.iter().map(|(method, _)| {
            let name = format!("{}/{}", method.service, method.name);
            (name, &method.policy)
        });
        f.debug_map().entries(entries).finish()
    }
}
