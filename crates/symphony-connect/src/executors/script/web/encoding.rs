//! Decoders of text, as the Encoding Standard has them.

use std::collections::HashMap;

use encoding_rs::{Decoder, DecoderResult, Encoding, REPLACEMENT};

use super::{Answer, no_such_function};
use crate::bounds::scripts::TEXT_STREAMS_MAX;
use crate::executors::script::host::Refusal;

/// The encoding that a label means, as `TextDecoder.encoding` says it; empty if it means none.
pub(super) fn name(label: &str) -> String {
    let found = Encoding::for_label(label.as_bytes()).filter(|found| *found != REPLACEMENT);
    found.map_or_else(String::new, |found| found.name().to_ascii_lowercase())
}

/// Decoders that wait for the next piece of their text.
#[derive(Default)]
pub(super) struct Decoders(HashMap<String, Decoder>);

impl Decoders {
    /// One piece of a text. Flags: `f` refuses what is malformed, `b` keeps a byte order mark, `s`: more pieces come.
    pub(super) fn decode(
        &mut self,
        encoding: &str,
        bytes: &[u8],
        flags: &str,
        stream: &str,
    ) -> Answer {
        let has = |flag: char| flags.contains(flag);
        let encoding = Encoding::for_label(encoding.as_bytes()).ok_or_else(no_such_function)?;
        let mut decoder = self.0.remove(stream).unwrap_or_else(|| {
            if has('b') {
                encoding.new_decoder_without_bom_handling()
            } else {
                encoding.new_decoder_with_bom_removal()
            }
        });
        let text = decoded(&mut decoder, bytes, has('f'), !has('s'))?;
        if has('s') {
            if self.0.len() >= TEXT_STREAMS_MAX {
                let problem = format!("more than {TEXT_STREAMS_MAX} texts are decoded in pieces");
                return Err(Refusal::Failure(problem));
            }
            self.0.insert(stream.to_owned(), decoder);
        }
        Ok(text)
    }
}

fn decoded(
    decoder: &mut Decoder,
    bytes: &[u8],
    is_fatal: bool,
    is_last: bool,
) -> Result<String, Refusal> {
    let too_long = || Refusal::Failure("input is too long".to_owned());
    if !is_fatal {
        let room = decoder.max_utf8_buffer_length(bytes.len()).ok_or_else(too_long)?;
        let mut text = String::with_capacity(room);
        let _room_was_enough = decoder.decode_to_string(bytes, &mut text, is_last);
        return Ok(text);
    }
    let room = decoder.max_utf8_buffer_length_without_replacement(bytes.len());
    let mut text = String::with_capacity(room.ok_or_else(too_long)?);
    match decoder.decode_to_string_without_replacement(bytes, &mut text, is_last) {
        (DecoderResult::InputEmpty, _) => Ok(text),
        (DecoderResult::Malformed(..) | DecoderResult::OutputFull, _) => {
            Err(Refusal::Argument("input is not valid in this encoding".to_owned()))
        }
    }
}
