//! Numbers of protocols, levels and socket options.

// bluetooth.h, l2cap.h, hci_sock.h; the libc crate has no names for them.
pub(super) const BTPROTO_L2CAP: i32 = 0;
pub(super) const BTPROTO_RFCOMM: i32 = 3;
pub(super) const SOL_L2CAP: i32 = 6;
pub(super) const L2CAP_OPTIONS: i32 = 1;
pub(super) const L2CAP_CONNINFO: i32 = 2;
pub(super) const SOL_BLUETOOTH: i32 = 274;
pub(super) const BT_SECURITY: i32 = 4;
pub(super) const BT_SNDMTU: i32 = 12;
pub(super) const BT_RCVMTU: i32 = 13;
pub(super) const BT_PHY: i32 = 14;
