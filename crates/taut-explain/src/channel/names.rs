//! Names of attributes' types (Assigned Numbers, sections 3.7 and 3.8), of such as are often seen.

pub(super) fn name(uuid: u16) -> Option<&'static str> {
    const NAMES: [(u16, &str); 34] = [
        (0x2902, "CCC descriptor"),
        (0x2a00, "Device Name"),
        (0x2a01, "Appearance"),
        (0x2a04, "Preferred Parameters"),
        (0x2a05, "Service Changed"),
        (0x2a06, "Alert Level"),
        (0x2a07, "Tx Power Level"),
        (0x2a19, "Battery Level"),
        (0x2a1c, "Temperature Measurement"),
        (0x2a22, "Boot Keyboard Input"),
        (0x2a23, "System ID"),
        (0x2a24, "Model Number"),
        (0x2a25, "Serial Number"),
        (0x2a26, "Firmware Revision"),
        (0x2a27, "Hardware Revision"),
        (0x2a28, "Software Revision"),
        (0x2a29, "Manufacturer Name"),
        (0x2a2b, "Current Time"),
        (0x2a33, "Boot Mouse Input"),
        (0x2a35, "Blood Pressure"),
        (0x2a37, "Heart Rate"),
        (0x2a38, "Body Sensor Location"),
        (0x2a4a, "HID Information"),
        (0x2a4b, "Report Map"),
        (0x2a4c, "HID Control Point"),
        (0x2a4d, "Report"),
        (0x2a4e, "Protocol Mode"),
        (0x2a50, "PnP ID"),
        (0x2a5b, "CSC Measurement"),
        (0x2a63, "Cycling Power"),
        (0x2a6e, "Temperature"),
        (0x2a6f, "Humidity"),
        (0x2b29, "Client Features"),
        (0x2b2a, "Database Hash"),
    ];
    NAMES.binary_search_by_key(&uuid, |(known, _)| *known).ok().map(|place| NAMES[place].1)
}

#[cfg(test)]
mod tests {
    use super::name;

    #[test]
    fn types_are_found_by_their_number() {
        assert_eq!((name(0x2902), name(0x2b2a)), (Some("CCC descriptor"), Some("Database Hash")));
        assert_eq!((name(0x2a37), name(0x2a36)), (Some("Heart Rate"), None));
    }
}
