//! bluer without D-Bus, as l2cat takes it: its sockets as they are, and no bluetoothd that could advertise.

pub use real::*;

/// Why there is no session with bluetoothd.
#[derive(Debug)]
pub struct NoDbus;

impl std::fmt::Display for NoDbus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("this l2cat is built without D-Bus and can't have bluetoothd advertise: use --no-advertise")
    }
}

impl std::error::Error for NoDbus {}

/// There is none.
pub enum Session {}

/// Nor one of these.
pub enum Adapter {}

impl Session {
    pub async fn new() -> std::result::Result<Self, NoDbus> {
        Err(NoDbus)
    }

    pub async fn default_adapter(&self) -> std::result::Result<Adapter, NoDbus> {
        match *self {}
    }
}

impl Adapter {
    pub async fn set_powered(&self, _: bool) -> std::result::Result<(), NoDbus> {
        match *self {}
    }

    pub async fn set_discoverable(&self, _: bool) -> std::result::Result<(), NoDbus> {
        match *self {}
    }

    pub async fn set_discoverable_timeout(&self, _: u32) -> std::result::Result<(), NoDbus> {
        match *self {}
    }

    pub async fn advertise(&self, _: adv::Advertisement) -> std::result::Result<adv::AdvertisementHandle, NoDbus> {
        match *self {}
    }
}

pub mod adv {
    use std::collections::BTreeSet;

    /// What would be advertised.
    #[derive(Default)]
    pub struct Advertisement {
        pub service_uuids: BTreeSet<crate::Uuid>,
        pub discoverable: Option<bool>,
        pub local_name: Option<String>,
    }

    /// Nothing ever is.
    pub enum AdvertisementHandle {}
}
