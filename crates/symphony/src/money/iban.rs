//! IBAN: ISO 13616, with each country's length and structure and the mod-97 checksum.

use iban::{Iban, ParseIbanError};

use super::Defect;

pub(super) const CODE: &str = "INVALID_IBAN";
pub(super) const FIELD: &str = "destination.iban";

/// The length of each country's IBAN, from the SWIFT registry: to say what is wrong, and for countries that joined it
/// after the library was made.
const LENGTHS: [(usize, &str); 18] = [
    (15, "NO"),
    (16, "BE"),
    (18, "DK FI FK FO GL NL SD"),
    (19, "MK SI"),
    (20, "AT BA EE KZ LT LU MN XK"),
    (21, "CH HR LI LV"),
    (22, "BG BH CR DE GB GE IE ME RS VA"),
    (23, "AE GI IL IQ OM SO TL"),
    (24, "AD CZ ES MD PK RO SA SE SK TN VG"),
    (25, "LY PT ST"),
    (26, "IS TR"),
    (27, "BI DJ FR GR IT MC MR SM"),
    (28, "AL AZ BY CY DO GT HN HU LB NI PL SV"),
    (29, "BR EG PS QA UA"),
    (30, "JO KW MU YE"),
    (31, "MT SC"),
    (32, "LC"),
    (33, "RU"),
];

/// Check an IBAN in its electronic form: no spaces, upper case.
pub(super) fn check(text: &str) -> Result<(), Defect> {
    let defect = |problem: String| Defect::new(CODE, FIELD, problem);
    if text.contains(' ') {
        return Err(defect("contains spaces: write it without them".to_owned()));
    }
    if text.bytes().any(|byte| byte.is_ascii_lowercase()) {
        return Err(defect("contains lower case letters: write it in upper case".to_owned()));
    }
    if !text.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit()) {
        return Err(defect("must be letters and digits only".to_owned()));
    }
    let Some(expected) = text.get(..2).and_then(length) else {
        return Err(defect("does not begin with the code of a country that has IBANs".to_owned()));
    };
    if text.len() != expected {
        return Err(defect(format!(
            "has {} characters: an IBAN of its country has {expected}",
            text.len()
        )));
    }
    // 00, 01 and 99 satisfy the checksum beside the real check digits, so they are never given out.
    let given = text.get(2..4).and_then(|digits| digits.parse::<u8>().ok());
    let checksum = || defect("fails its checksum: a digit is wrong or two are swapped".to_owned());
    if given.is_none_or(|digits| !(2..=98).contains(&digits)) {
        return Err(checksum());
    }
    match text.parse::<Iban>() {
        Ok(_) | Err(ParseIbanError::UnknownCountry(_)) => Ok(()),
        Err(ParseIbanError::InvalidBaseIban { .. }) => Err(checksum()),
        Err(ParseIbanError::InvalidBban(_)) => Err(defect(
            "is not built as those of its country are: it has letters where digits belong, or the reverse".to_owned(),
        )),
    }
}

fn length(country: &str) -> Option<usize> {
    LENGTHS
        .iter()
        .find(|(_, countries)| countries.split(' ').any(|known| known == country))
        .map(|(length, _)| *length)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// One real-world form per country: the examples banks and the registry print.
    const EXAMPLES: &str = "
        AD1200012030200359100100 AE070331234567890123456 AL47212110090000000235698741 AT611904300234573201
        AZ21NABZ00000000137010001944 BA391290079401028494 BE68539007547034 BG80BNBG96611020345678
        BH67BMAG00001299123456 BI4210000100010000332045181 BR1800360305000010009795493C1
        BY13NBRB3600900000002Z00AB00 CH9300762011623852957 CR05015202001026284066 CY17002001280000001200527600
        CZ6508000000192000145399 DE89370400440532013000 DJ2100010000000154000100186 DK5000400440116243
        DO28BAGR00000001212453611324 EE382200221020145685 EG380019000500000000263180002 ES9121000418450200051332
        FI2112345600000785 FK88SC123456789012 FO6264600001631634 FR1420041010050500013M02606
        GB29NWBK60161331926819 GE29NB0000000101904917 GI75NWBK000000007099453 GL8964710001000206
        GR1601101250000000012300695 GT82TRAJ01020000001210029690 HN88CABF00000000000250005469
        HR1210010051863000160 HU42117730161111101800000000 IE29AIBK93115212345678 IL620108000000099999999
        IQ98NBIQ850123456789012 IS140159260076545510730339 IT60X0542811101000000123456
        JO94CBJO0010000000000131000302 KW81CBKU0000000000001234560101 KZ86125KZT5004100100
        LB62099900000001001901229114 LC55HEMM000100010012001200023015 LI21088100002324013AA LT121000011101001000
        LU280019400644750000 LV80BANK0000435195001 LY83002048000020100120361 MC5811222000010123456789030
        MD24AG000225100013104168 ME25505000012345678951 MK07250120000058984 MN121234123456789123
        MR1300020001010000123456753 MT84MALT011000012345MTLCAST001S MU17BOMM0101101030300200000MUR
        NI45BAPR00000013000003558124 NL91ABNA0417164300 NO9386011117947 OM810180000001299123456
        PK36SCBL0000001123456702 PL61109010140000071219812874 PS92PALS000000000400123456702
        PT50000201231234567890154 QA58DOHB00001234567890ABCDEFG RO49AAAA1B31007593840000 RS35260005601001611379
        RU0304452522540817810538091310419 SA0380000000608010167519 SC18SSCB11010000000000001497USD
        SD8811123456789012 SE4550000000058398257466 SI56263300012039086 SK3112000000198742637541
        SM86U0322509800000000270100 SO211000001001000100141 ST23000100010051845310146
        SV62CENR00000000000000700025 TL380080012345678910157 TN5910006035183598478831 TR330006100519786457841326
        UA213223130000026007233566001 VA59001123000012345678 VG96VPVG0000012345678901 XK051212012345678906
        YE15CBYE0001018861234567891234";

    /// Modulo 97 with the first four characters moved to the end and letters read as 10 to 35.
    fn remainder(text: &str) -> Option<u32> {
        let (front, rest) = text.split_at_checked(4)?;
        rest.chars().chain(front.chars()).try_fold(0, |remainder, character| {
            let digit = character.to_digit(36)?;
            let shift = if digit < 10 { 10 } else { 100 };
            Some((remainder * shift + digit) % 97)
        })
    }

    #[test]
    fn a_right_checksum_over_a_wrong_structure_is_refused() {
        // A German account number has digits only; the check digits are right.
        let text = (2..=98)
            .map(|digits| format!("DE{digits:02}37040044053201300A"))
            .find(|text| remainder(text) == Some(1))
            .unwrap();
        assert!(check(&text).unwrap_err().error.problem.contains("not built as"), "{text}");
    }

    #[test]
    fn every_country_of_the_table_has_an_example_that_passes() {
        for example in EXAMPLES.split_whitespace() {
            assert_eq!(check(example), Ok(()), "{example}");
        }
        let examples: BTreeSet<_> = EXAMPLES.split_whitespace().map(|text| &text[..2]).collect();
        let table: BTreeSet<_> =
            LENGTHS.iter().flat_map(|(_, countries)| countries.split(' ')).collect();
        assert_eq!(examples, table);
    }

    #[test]
    fn a_single_wrong_digit_is_caught_wherever_it_is() {
        for example in EXAMPLES.split_whitespace() {
            for (at, right) in example.bytes().enumerate().filter(|(_, b)| b.is_ascii_digit()) {
                for wrong in (b'0'..=b'9').filter(|wrong| *wrong != right) {
                    let mut bytes = example.as_bytes().to_vec();
                    bytes[at] = wrong;
                    let text = String::from_utf8(bytes).unwrap();
                    assert!(check(&text).is_err(), "{example} became {text}");
                }
            }
        }
    }

    #[test]
    fn two_swapped_digits_are_caught_wherever_they_are() {
        for example in EXAMPLES.split_whitespace() {
            for at in 1..example.len() {
                let mut bytes = example.as_bytes().to_vec();
                let (left, right) = (bytes[at - 1], bytes[at]);
                if left.is_ascii_digit() && right.is_ascii_digit() && left != right {
                    bytes.swap(at - 1, at);
                    let text = String::from_utf8(bytes).unwrap();
                    assert!(check(&text).is_err(), "{example} became {text}");
                }
            }
        }
    }

    #[test]
    fn a_lost_or_added_character_is_caught() {
        for example in EXAMPLES.split_whitespace() {
            for at in 0..example.len() {
                let shorter = format!("{}{}", &example[..at], &example[at + 1..]);
                let longer = format!("{}0{}", &example[..at], &example[at..]);
                assert!(check(&shorter).is_err() && check(&longer).is_err(), "{example}");
            }
        }
    }

    #[test]
    fn what_is_no_iban_is_refused_with_the_fix() {
        for (text, expected) in [
            ("", "does not begin with the code of a country"),
            ("D", "does not begin"),
            ("DE", "has 2 characters: an IBAN of its country has 22"),
            ("DE89 3704 0044 0532 0130 00", "contains spaces: write it without them"),
            ("de89370400440532013000", "write it in upper case"),
            ("DE89370400440532O13000", "fails its checksum"),
            ("DE8937040044053201300", "has 21 characters"),
            ("DE893704004405320130000", "has 23 characters"),
            ("US89370400440532013000", "does not begin"),
            ("XX89370400440532013000", "does not begin"),
            ("DE89-3704-0044-0532-0130-00", "letters and digits only"),
            ("DE89\t370400440532013000", "letters and digits only"),
            ("DE8937040044053201300\u{0660}", "letters and digits only"),
            ("ÄE89370400440532013000", "letters and digits only"),
            ("DEAB370400440532013000", "fails its checksum"),
            ("DE88370400440532013000", "fails its checksum"),
        ] {
            let defect = check(text).unwrap_err();
            assert_eq!((defect.code, defect.error.field.as_str()), (CODE, FIELD));
            assert!(defect.error.problem.contains(expected), "{text:?}: {defect}");
        }
    }

    #[test]
    fn check_digits_that_are_never_given_out_are_refused_although_they_add_up() {
        // 97 and 00, 98 and 01, 02 and 99 are the same modulo 97.
        for country in ["AT", "LT", "XK"] {
            let mut seen = 0;
            for account in 0..2_000 {
                for forged in ["00", "01", "99"] {
                    let text = format!("{country}{forged}{account:016}");
                    if remainder(&text) == Some(1) {
                        seen += 1;
                        assert!(check(&text).is_err(), "{text}");
                    }
                }
            }
            assert!(seen > 30, "{seen} candidates");
        }
    }
}
