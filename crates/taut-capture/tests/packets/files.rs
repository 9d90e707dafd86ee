//! Files around packets: Solaris snoop, and zip archives.

/// RFC 1761, with so many bytes of padding behind each packet.
pub(crate) fn snoop(link: u32, padding: usize, packets: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let mut file = b"snoop\0\0\0\0\0\0\x02".to_vec();
    file.extend(link.to_be_bytes());
    for (number, (at, bytes)) in packets.iter().enumerate() {
        let length = bytes.len() as u32;
        file.extend(length.to_be_bytes());
        file.extend(length.to_be_bytes());
        file.extend((24 + length + padding as u32).to_be_bytes());
        // Lost so far.
        file.extend((number as u32).to_be_bytes());
        file.extend(((at / 1_000_000_000) as u32).to_be_bytes());
        file.extend((at % 1_000_000_000 / 1000).to_be_bytes()[4..].iter());
        file.extend(bytes);
        file.resize(file.len() + padding, 0xaa);
    }
    file
}

/// A file in an archive.
#[derive(Clone, Debug, Default)]
pub(crate) struct Zipped {
    pub(crate) name: String,
    /// As it was before compression.
    pub(crate) plain: Vec<u8>,
    /// Method and what it made of that; `None` where it is stored.
    pub(crate) packed: Option<(u16, Vec<u8>)>,
    /// Lengths in the extra field of zip64.
    pub(crate) is_zip64: bool,
    /// Lengths and checksum behind the data, as a program writes them that can't go back.
    pub(crate) has_descriptor: bool,
    pub(crate) is_encrypted: bool,
}

impl Zipped {
    pub(crate) fn stored(name: &str, plain: &[u8]) -> Self {
        Self { name: name.to_owned(), plain: plain.to_vec(), ..Self::default() }
    }

    fn bytes(&self) -> &[u8] {
        self.packed.as_ref().map_or(&self.plain, |(_, bytes)| bytes)
    }

    /// What the local header and the directory have alike, from the version on.
    fn header(&self, is_local: bool) -> Vec<u8> {
        let flags = u16::from(self.is_encrypted) | u16::from(self.has_descriptor) << 3;
        let method = self.packed.as_ref().map_or(0, |(method, _)| *method);
        let mut header = Vec::new();
        header.extend([45, 0]);
        header.extend(flags.to_le_bytes());
        header.extend(method.to_le_bytes());
        header.extend([0; 4]);
        let lengths = [self.bytes().len() as u32, self.plain.len() as u32];
        let is_told_later = is_local && self.has_descriptor;
        header.extend(if is_told_later { 0 } else { crc(&self.plain) }.to_le_bytes());
        for length in lengths {
            let told = if self.is_zip64 { u32::MAX } else { length };
            header.extend(if is_told_later { 0 } else { told }.to_le_bytes());
        }
        header.extend((self.name.len() as u16).to_le_bytes());
        header.extend((self.extra().len() as u16).to_le_bytes());
        header
    }

    fn extra(&self) -> Vec<u8> {
        if !self.is_zip64 {
            return Vec::new();
        }
        let lengths = [self.plain.len() as u64, self.bytes().len() as u64].map(u64::to_le_bytes);
        [&[1, 0, 16, 0][..], &lengths[0], &lengths[1]].concat()
    }
}

pub(crate) fn zip(files: &[Zipped]) -> Vec<u8> {
    let (mut archive, mut directory) = (Vec::new(), Vec::new());
    for file in files {
        let place = archive.len() as u32;
        archive.extend(b"PK\x03\x04");
        archive.extend(file.header(true));
        archive.extend(file.name.as_bytes());
        archive.extend(file.extra());
        archive.extend(file.bytes());
        if file.has_descriptor {
            archive.extend(b"PK\x07\x08");
            archive.extend(crc(&file.plain).to_le_bytes());
            archive.extend((file.bytes().len() as u32).to_le_bytes());
            archive.extend((file.plain.len() as u32).to_le_bytes());
        }
        directory.extend(b"PK\x01\x02\x2d\x03");
        directory.extend(file.header(false));
        directory.extend([0; 10]);
        directory.extend(place.to_le_bytes());
        directory.extend(file.name.as_bytes());
        directory.extend(file.extra());
    }
    let place = archive.len() as u32;
    archive.extend(&directory);
    archive.extend(b"PK\x05\x06\0\0\0\0");
    archive.extend((files.len() as u16).to_le_bytes());
    archive.extend((files.len() as u16).to_le_bytes());
    archive.extend((directory.len() as u32).to_le_bytes());
    archive.extend(place.to_le_bytes());
    archive.extend([0; 2]);
    archive
}

fn crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 })
    })
}
