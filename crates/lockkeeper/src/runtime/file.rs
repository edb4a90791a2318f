//! Reading files that a user names: settings, keys, certificates.

use std::fs::{self, Metadata};
use std::io::{Error, ErrorKind, Read as _, Result};
use std::path::Path;

/// No such file is longer.
#[cfg_attr(not(feature = "config"), allow(dead_code, reason = "not all stores have files of keys"))]
const MOST_BYTES: u64 = 1 << 20;

/// What is in a regular file of moderate size, and what the file system says of it. Reading a named pipe or a device might never end.
#[cfg_attr(not(feature = "config"), allow(dead_code, reason = "not all stores have files of keys"))]
pub(crate) fn read_file(file: &Path) -> Result<(Metadata, Vec<u8>)> {
    let meta = fs::metadata(file)?;
    if !meta.is_file() {
        return Err(Error::new(ErrorKind::InvalidInput, "it is not a regular file"));
    }
    if meta.len() > MOST_BYTES {
        return Err(Error::new(ErrorKind::InvalidInput, "it is longer than any such file; is it one?"));
    }
    let mut bytes = Vec::new();
    fs::File::open(file)?.take(MOST_BYTES).read_to_end(&mut bytes)?;
    Ok((meta, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_regular_file_of_moderate_size_is_not_read() {
        let read = |path: &str| read_file(Path::new(path)).map(|_| ()).map_err(|error| error.to_string());
        assert_eq!(read(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")), Ok(()));
        assert_eq!(read(env!("CARGO_MANIFEST_DIR")).unwrap_err(), "it is not a regular file");
        #[cfg(unix)]
        assert_eq!(read("/dev/zero").unwrap_err(), "it is not a regular file");
    }
}
