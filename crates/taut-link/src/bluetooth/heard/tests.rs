use super::*;

fn peer() -> DeviceAddress {
    DeviceAddress::from_wire([1, 2, 3, 4, 5, 6])
}

fn frame(opcode: u16, adapter: u16, body: &[u8]) -> Vec<u8> {
    let head = [opcode, adapter, u16::try_from(body.len()).unwrap()];
    head.into_iter().flat_map(u16::to_le_bytes).chain(body.iter().copied()).collect()
}

fn connection_complete(interval: u16) -> Vec<u8> {
    // Event, length; subevent, status, handle, role; peer's type and address; interval, latency, timeout, accuracy.
    let mut event = vec![LE_META, 19, CONNECTION_COMPLETE, 0, 64, 0, 0, 0];
    event.extend_from_slice(&[1, 2, 3, 4, 5, 6]);
    event.extend_from_slice(&interval.to_le_bytes());
    event.extend_from_slice(&[0, 0, 42, 0, 0]);
    assert_eq!(event.len(), 2 + usize::from(event[1]));
    event
}

fn updated(interval: u8) -> [u8; 12] {
    [LE_META, 10, CONNECTION_UPDATE, 0, 64, 0, interval, 0, 0, 0, 42, 0]
}

fn signal(code: u8, fields: &[u16]) -> Vec<u8> {
    signal_on(64, code, fields)
}

/// A signal on a connection: its handle with the boundary flag.
fn signal_on(handle: u16, code: u8, fields: &[u16]) -> Vec<u8> {
    let length = u16::try_from(2 * fields.len()).unwrap();
    let mut packet =
        [handle, length + 8, length + 4, LE_SIGNALLING].into_iter().flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
    packet.extend_from_slice(&[code, 1]);
    packet.extend([length].iter().chain(fields).flat_map(|field| field.to_le_bytes()));
    packet
}

#[test]
fn radio_and_channel_are_heard() {
    let mut heard = Heard::default();
    let mut take = |frame: Vec<u8>| heard.take(0, peer(), &frame);
    take(frame(EVENT, 0, &connection_complete(40)));
    take(frame(EVENT, 0, &[LE_META, 11, DATA_LENGTH_CHANGE, 64, 0, 251, 0, 0x48, 8, 123, 0, 0x48, 8]));
    take(frame(ACL_TX, 0, &signal(CREDIT_CONNECTION_REQUEST, &[129, 64, 672, 247, 3])));
    take(frame(ACL_RX, 0, &signal(CREDIT_CONNECTION_RESPONSE, &[65, 672, 188, 4, 0])));
    // Of another channel, then of ours, by the number that each side has for it.
    take(frame(ACL_TX, 0, &signal(CREDITS, &[70, 99])));
    take(frame(ACL_TX, 0, &signal(CREDITS, &[64, 3])));
    take(frame(ACL_RX, 0, &signal(CREDITS, &[65, 46])));
    take(frame(ACL_RX, 0, &signal(CREDITS, &[65, 4])));
    let facts = [
        "connection_interval_us=50000",
        "peripheral_latency=0",
        "supervision_timeout_ms=420",
        "tx_octets=251",
        "rx_octets=123",
        "rcv_mps=247",
        "credits_granted=3",
        "largest_grant=3",
        "snd_mps=188",
        "credits_received=4",
        "largest_grant_received=46",
        "phy=1m_tx+1m_rx",
    ];
    assert_eq!(heard.facts(), facts);
    heard.take(0, peer(), &frame(EVENT, 0, &updated(6)));
    assert_eq!(heard.facts()[0], "connection_interval_us=7500");
    heard.take(0, peer(), &frame(EVENT, 0, &[LE_META, 6, PHY_UPDATE, 0, 64, 0, 2, 2]));
    assert_eq!(heard.agreed().phys, Some([2, 2]));
}

#[test]
fn a_link_that_was_up_before_is_known_by_its_handle_and_by_what_the_peer_tells() {
    let told = Agreed { interval: Some(12), tx_octets: Some(251), rx_octets: Some(27), ..Agreed::default() };
    let mut heard = Heard::of(Some(64));
    // Of another connection than the channel's.
    heard.take(0, peer(), &frame(EVENT, 0, &[LE_META, 10, CONNECTION_UPDATE, 0, 65, 0, 6, 0, 0, 0, 42, 0]));
    assert_eq!(heard.facts(), Vec::<String>::new());
    heard.take(
        0,
        peer(),
        &frame(EVENT, 0, &[LE_META, 11, DATA_LENGTH_CHANGE, 64, 0, 100, 0, 0x48, 8, 100, 0, 0x48, 8]),
    );
    heard.be_told(told);
    // What was heard here is newer.
    assert_eq!(heard.facts(), ["connection_interval_us=15000", "tx_octets=100", "rx_octets=100"]);
    heard.take(0, peer(), &frame(EVENT, 0, &updated(6)));
    assert_eq!(heard.facts()[0], "connection_interval_us=7500");

    // What is known of an old link is not said of a new one.
    let mut next = Heard::of(Some(65));
    next.begin_with(heard.radio());
    assert_eq!((next.agreed(), next.facts()), (Agreed::default(), Vec::new()));
    next.be_told(told);
    assert_eq!((next.agreed(), next.radio().handle), (told, Some(65)));
}

#[test]
fn a_number_that_the_peer_still_has_is_told_from_other_refusals() {
    let asked = || {
        let mut heard = Heard::default();
        heard.take(0, peer(), &frame(EVENT, 0, &connection_complete(40)));
        heard.take(0, peer(), &frame(ACL_TX, 0, &signal(CREDIT_CONNECTION_REQUEST, &[129, 66, 672, 247, 3])));
        heard
    };
    for (result, taken) in [(0, false), (2, false), (10, true)] {
        let mut heard = asked();
        heard.take(0, peer(), &frame(ACL_RX, 0, &signal(CREDIT_CONNECTION_RESPONSE, &[0, 0, 0, 0, result])));
        assert_eq!(heard.number_is_taken(), taken, "{result}");
    }
    assert!(!asked().number_is_taken());
}

#[test]
fn what_became_of_the_links_security_is_heard() {
    let mut heard = Heard::default();
    heard.take(0, peer(), &frame(EVENT, 0, &connection_complete(40)));
    let change = |status, handle, enabled| frame(EVENT, 0, &[ENCRYPTION_CHANGE, 4, status, handle, 0, enabled]);
    let is_encrypted = |heard: &Heard| heard.facts().iter().any(|fact| fact == "encrypted=1");
    // Of another link; then of ours.
    heard.take(0, peer(), &change(0, 65, 1));
    assert!(!is_encrypted(&heard));
    heard.take(0, peer(), &change(0, 64, 1));
    assert!(is_encrypted(&heard) && heard.insecure().is_none());
    heard.take(0, peer(), &change(6, 64, 0));
    assert_eq!(heard.insecure(), Some(Insecure::Encryption { status: 6 }));
    // Handle with flags, length; length, channel; code, reason. From the peer, then from us; of another link.
    let failed = |handle, reason| [handle, 0x20, 6, 0, 2, 0, 6, 0, PAIRING_FAILED, reason];
    heard.take(0, peer(), &frame(ACL_RX, 0, &failed(64, 5)));
    assert_eq!(heard.insecure(), Some(Insecure::Pairing { reason: 5, by_peer: true }));
    heard.take(0, peer(), &frame(ACL_TX, 0, &failed(64, 3)));
    heard.take(0, peer(), &frame(ACL_RX, 0, &failed(65, 8)));
    assert_eq!(heard.insecure(), Some(Insecure::Pairing { reason: 3, by_peer: false }));
    // A new connection begins in clear text.
    heard.take(0, peer(), &frame(EVENT, 0, &connection_complete(40)));
    assert!(!is_encrypted(&heard));
}

#[test]
fn an_interval_that_the_peer_puts_back_is_told_from_one_that_we_change() {
    let changed = |asked: Option<(u8, &[u16])>, to: u8| {
        let mut heard = Heard::default();
        heard.take(0, peer(), &frame(EVENT, 0, &connection_complete(6)));
        if let Some((result, limits)) = asked {
            heard.take(0, peer(), &frame(ACL_RX, 0, &signal(PARAMETER_UPDATE_REQUEST, limits)));
            heard.take(0, peer(), &frame(ACL_TX, 0, &signal(PARAMETER_UPDATE_RESPONSE, &[result.into()])));
        }
        heard.take(0, peer(), &frame(EVENT, 0, &updated(to)));
        heard.facts().into_iter().find(|fact| fact.starts_with("interval_put_back"))
    };
    let limits: &[u16] = &[24, 40, 0, 42];
    assert_eq!(changed(Some((0, limits)), 40).as_deref(), Some("interval_put_back_from_us=7500"));
    // Refused, of our own accord, or not what it asked for.
    assert_eq!(changed(Some((1, limits)), 40), None);
    assert_eq!(changed(None, 40), None);
    assert_eq!(changed(Some((0, limits)), 12), None);
}

#[test]
fn data_before_the_answer_that_opens_the_channel_is_counted() {
    let data = frame(ACL_RX, 0, &[64, 0, 6, 0, 2, 0, 64, 0, 1, 2]);
    let mut heard = Heard::default();
    heard.take(0, peer(), &data);
    heard.take(0, peer(), &frame(ACL_TX, 0, &signal(CREDIT_CONNECTION_REQUEST, &[129, 64, 672, 247, 3])));
    heard.take(0, peer(), &data);
    heard.take(0, peer(), &frame(ACL_RX, 0, &signal(CREDIT_CONNECTION_RESPONSE, &[65, 672, 247, 3, 0])));
    heard.take(0, peer(), &data);
    assert!(heard.facts().contains(&"data_before_response=1".to_owned()), "{:?}", heard.facts());
}

/// Our channel on connection 64: the peer takes 247 bytes a PDU and gave 10 credits.
fn ours_on_64() -> Heard {
    let mut heard = Heard::of(Some(64));
    heard.take(0, peer(), &frame(ACL_TX, 0, &signal(CREDIT_CONNECTION_REQUEST, &[129, 64, 672, 247, 3])));
    heard.take(0, peer(), &frame(ACL_RX, 0, &signal(CREDIT_CONNECTION_RESPONSE, &[65, 672, 247, 10, 0])));
    assert!(heard.facts().contains(&"credits_received=10".to_owned()), "{:?}", heard.facts());
    heard
}

#[test]
fn signals_of_another_connection_are_not_ours() {
    let mut heard = ours_on_64();
    let before = heard.facts();
    for (sent, packet) in [
        (ACL_RX, signal_on(65, CREDIT_CONNECTION_REQUEST, &[131, 65, 512, 23, 1])),
        (ACL_RX, signal_on(65, CREDITS, &[65, 500])),
        (ACL_TX, signal_on(65, CREDIT_CONNECTION_RESPONSE, &[64, 512, 23, 1, 0])),
        (ACL_RX, signal_on(65, PARAMETER_UPDATE_REQUEST, &[24, 40, 0, 42])),
    ] {
        heard.take(0, peer(), &frame(sent, 0, &packet));
        assert_eq!(heard.facts(), before, "{packet:?}");
    }
    assert_eq!(heard.radio.peer_wants, None);
    // The other one's own facts are there for who is on it.
    heard.be_of(65);
    assert!(heard.facts().contains(&"snd_mps=23".to_owned()), "{:?}", heard.facts());
}

/// The rest of a long PDU has no header of L2CAP, whatever its bytes look like: on another connection and on ours.
#[test]
fn a_fragment_of_data_is_no_signal() {
    for handle in [65, 64] {
        let mut heard = ours_on_64();
        let before = heard.facts();
        heard.take(0, peer(), &frame(ACL_RX, 0, &signal_on(handle | 0x1000, CREDITS, &[65, 777])));
        assert_eq!(heard.facts(), before, "{handle}");
    }
}

#[test]
fn a_signal_in_fragments_is_put_together_on_its_own_connection() {
    let mut heard = ours_on_64();
    let whole = signal(CREDITS, &[65, 46]);
    let (first, rest) = whole[4..].split_at(7);
    let fragment = |handle: u16, data: &[u8]| {
        let head = [handle, u16::try_from(data.len()).unwrap()].map(u16::to_le_bytes).concat();
        frame(ACL_RX, 0, &[head, data.to_vec()].concat())
    };
    heard.take(0, peer(), &fragment(64, first));
    // A whole PDU of another connection in between, and a fragment the other way.
    heard.take(0, peer(), &frame(ACL_RX, 0, &signal_on(65, CREDITS, &[65, 999])));
    assert!(!heard.facts().iter().any(|fact| fact.starts_with("largest_grant_received")));
    heard.take(0, peer(), &fragment(64 | 0x1000, rest));
    assert!(heard.facts().contains(&"largest_grant_received=46".to_owned()), "{:?}", heard.facts());
}

#[test]
fn a_new_connection_with_an_old_handle_begins_anew() {
    let mut heard = ours_on_64();
    heard.take(0, peer(), &frame(EVENT, 0, &connection_complete(40)));
    assert!(!heard.facts().iter().any(|fact| fact.contains("credits")), "{:?}", heard.facts());
}

#[test]
fn an_answer_to_a_command_is_told_once() {
    let mut heard = Heard::default();
    heard.take(0, peer(), &frame(EVENT, 0, &[COMMAND_STATUS, 4, 0x0C, 1, 0x13, 0x20]));
    assert_eq!((heard.answer(0x2032), heard.answer(0x2013), heard.answer(0x2013)), (None, Some(0x0C), None));
}

#[test]
fn what_is_of_another_link_or_broken_is_passed_over() {
    let mut heard = Heard::default();
    let whole = frame(EVENT, 0, &connection_complete(40));
    heard.take(1, peer(), &whole);
    heard.take(0, DeviceAddress::from_wire([9; 6]), &whole);
    (0..whole.len() - 6).for_each(|length| heard.take(0, peer(), &whole[..length]));
    heard.take(0, peer(), &frame(ACL_TX, 0, &signal(CREDIT_CONNECTION_REQUEST, &[129, 64])));
    assert_eq!((heard.facts(), heard.radio.agreed.interval), (Vec::new(), None));
}
