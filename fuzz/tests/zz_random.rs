#[test]
fn random() {
    let mut seed = 0x9E3779B97F4A7C15u64;
    let mut next = move || { seed ^= seed << 13; seed ^= seed >> 7; seed ^= seed << 17; seed };
    for round in 0..15000u64 {
        let n = (next() % 120) as usize;
        let quiet = round % 2 == 0;
        let data: Vec<u8> = (0..n).flat_map(|_| { let v = next(); let mut verb = (v & 0xff) as u8; if quiet && verb & 0xf == 10 { verb ^= 2 } [verb, ((v >> 8) as u8) >> ((v >> 16) & 7)] }).collect();
        let d = data.clone();
        if std::panic::catch_unwind(move || ttrpc_keepalive_fuzz::multiplexer::check(&d)).is_err() { panic!("round {round} {data:?}"); }
    }
}
