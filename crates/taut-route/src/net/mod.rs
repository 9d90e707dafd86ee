//! The network as routes see it: devices, ways, neighbours, namespaces.

pub(crate) mod filter;
pub(crate) mod namespace;
pub(crate) mod netlink;

#[cfg(test)]
mod tests;
