//! The keepalive of all connections of this process.

use std::sync::{PoisonError, RwLock};

pub use ttrpc_keepalive::Keepalive;
pub use ttrpc_keepalive::keepalive::ConfigError;

/// `None` until it is set.
static SETTINGS: RwLock<Option<Keepalive>> = RwLock::new(None);

/// Sets the keepalive of connections that are made or accepted from now on, by clients and servers alike.
///
/// [`Keepalive::on_demand`] until it is called: PINGs are answered, a peer is asked at the first exchange
/// and when a call is late, and nothing is closed for silence. A server asks only a client that has asked
/// before. With [`Keepalive::off`] nothing is asked at all.
///
/// # Errors
///
/// If a value is out of its range; what was set before stays.
pub fn set(keepalive: Keepalive) -> Result<(), ConfigError> {
    keepalive.validate()?;
    *SETTINGS.write().unwrap_or_else(PoisonError::into_inner) = Some(keepalive);
    Ok(())
}

pub(crate) fn settings() -> Keepalive {
    let settings = SETTINGS.read().unwrap_or_else(PoisonError::into_inner);
    settings.clone().unwrap_or_else(Keepalive::on_demand)
}
