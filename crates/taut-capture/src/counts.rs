/// What a capture held, in packets.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// All.
    pub packets: u64,
    /// Segments of TCP, which became events, but for copies.
    pub tcp: u64,
    /// Datagrams of UDP, which became events.
    pub udp: u64,
    /// Of tunnels (GRE, VXLAN, Geneve, GTP, IP in IP); what they carry is counted as what it is.
    pub tunnelled: u64,
    /// Segments of TCP that came in a tunnel after they came without it, or the other way round; they are left out.
    pub tunnel_copies: u64,
    /// Other protocols, and what is encrypted.
    pub not_tcp: u64,
    /// Of a link type that is not read.
    pub unknown_link: u64,
    /// The first of these types.
    pub first_unknown_link: Option<u16>,
    /// Fragments other than the first; what they carry is not seen.
    pub fragments: u64,
    /// Kept so little of that the header of TCP or UDP is not whole.
    pub cut: u64,
    /// Openings of connections (SYN) of whose options a part was not kept.
    pub openings_cut: u64,
    /// With a length in a header that can't be.
    pub malformed: u64,
    /// Of TCP or UDP from an address and port to the same ones; its directions can't be told from each other.
    pub to_itself: u64,
    /// Without a time.
    pub without_time: u64,
    /// Of the host controller interface of Bluetooth.
    pub hci: u64,
    /// Of them ACL packets of channels that are followed.
    pub l2cap: u64,
    /// Of them Number Of Completed Packets.
    pub hci_completions: u64,
    /// PDUs of BR/EDR on fixed channels, which are not followed.
    pub classic: u64,
    /// Events and signalling of Bluetooth that were not kept whole; what they say is not known.
    pub hci_cut: u64,
    /// Of a log of Bluetooth, and of no use here: notes, audio, commands of other kinds.
    pub hci_other: u64,
    /// Of Bluetooth LE on the air.
    pub air: u64,
    /// Of them not data PDUs of a link: advertising, and what a sniffer notes.
    pub air_other: u64,
    /// Of them without a link so far, and with a CRC that is wrong or was not looked at.
    pub air_stray: u64,
    /// Connections, and flows of UDP.
    pub flows: u64,
    /// Connections that were closed to make room for others.
    pub evicted: u64,
}
