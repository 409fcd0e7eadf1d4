//! ISO 4217: which currencies exist, and how many decimals each has.

/// The active codes with a minor unit, funds codes included, by their number of decimals. Ordered, for the eye.
///
/// Absent on purpose: codes that ISO lists without a minor unit (metals, XDR, XSU, XUA, bond units), because an
/// amount of them has no exact smallest unit; XTS and XXX, which are no money; and withdrawn codes, the latest
/// being HRK, SLL, ZWL, ANG and, since Bulgaria has the euro, BGN.
const BY_DECIMALS: [(u8, &str); 4] = [
    (0, "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF"),
    (
        2,
        "AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BMD BND BOB BOV BRL BSD BTN BWP BYN BZD CAD CDF CHE CHF \
         CHW CNY COP COU CRC CUP CVE CZK DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GTQ GYD HKD HNL \
         HTG HUF IDR ILS INR IRR JMD KES KGS KHR KPW KYD KZT LAK LBP LKR LRD LSL MAD MDL MGA MKD MMK MNT MOP MRU \
         MUR MVR MWK MXN MXV MYR MZN NAD NGN NIO NOK NPR NZD PAB PEN PGK PHP PKR PLN QAR RON RSD RUB SAR SBD SCR \
         SDG SEK SGD SHP SLE SOS SRD SSP STN SVC SYP SZL THB TJS TMT TOP TRY TTD TWD TZS UAH USD USN UYU UZS VED \
         VES WST XAD XCD XCG YER ZAR ZMW ZWG",
    ),
    (3, "BHD IQD JOD KWD LYD OMR TND"),
    (4, "CLF UYW"),
];

/// How many decimals a currency has; `None` if there is no such currency.
pub(super) fn decimals(code: &str) -> Option<u8> {
    BY_DECIMALS
        .iter()
        .find(|(_, codes)| codes.split(' ').any(|known| known == code))
        .map(|(decimals, _)| *decimals)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use iso_currency::{Currency, IntoEnumIterator as _};

    use super::*;

    /// Where the independent list is behind ISO's: `Some` is what holds, `None` that the code is withdrawn.
    const NEWER_THAN_THE_LIST: [(&str, Option<u8>); 6] = [
        ("BGN", None),
        ("CUC", None),
        ("HRK", None),
        ("SLL", None),
        ("ZWL", None),
        ("XAD", Some(2)),
    ];

    #[test]
    fn the_table_agrees_with_an_independent_one() {
        let mut expected: BTreeMap<String, u8> = Currency::iter()
            .filter_map(|known| {
                let exponent = known.exponent().and_then(|decimals| u8::try_from(decimals).ok())?;
                Some((known.code().to_owned(), exponent))
            })
            .collect();
        for (code, decimals) in NEWER_THAN_THE_LIST {
            match decimals {
                Some(decimals) => expected.insert(code.to_owned(), decimals),
                None => expected.remove(code),
            };
        }
        let ours: BTreeMap<String, u8> = BY_DECIMALS
            .iter()
            .flat_map(|(decimals, codes)| codes.split(' ').map(|code| (code.to_owned(), *decimals)))
            .collect();
        assert_eq!(ours, expected);
    }

    #[test]
    fn a_currency_is_exactly_an_active_code() {
        for (code, expected) in [
            ("JPY", Some(0)),
            ("EUR", Some(2)),
            ("KWD", Some(3)),
            ("CLF", Some(4)),
            ("XCG", Some(2)),
            ("eur", None),
            ("EU", None),
            ("EURO", None),
            ("EUR ", None),
            ("", None),
            (" ", None),
            ("EUR FJD", None),
            ("XXX", None),
            ("XTS", None),
            ("XAU", None),
            ("XDR", None),
            ("DEM", None),
            ("HRK", None),
            ("BGN", None),
            ("BTC", None),
        ] {
            assert_eq!(decimals(code), expected, "{code:?}");
        }
    }
}
