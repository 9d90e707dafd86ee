#!/bin/sh
# The throughput of "Async Rust Bluetooth plumbing: where the throughput goes" between two machines with controllers of
# their own. docs/raspberry-pi.md has the check list.
#
#   sudo ./paper-000.sh serve              on the one machine: the peripheral, which writes
#   sudo ./paper-000.sh measure ADDRESS    on the other: the central, which reads
#
# ADAPTER (hci0), PSM (255), TIME of each interval (20s) and OUT, the directory of the recordings (paper-000), are taken
# from the environment. They go behind sudo, which drops what stands before it: sudo ADAPTER=hci1 ./paper-000.sh serve
set -eu
adapter=${ADAPTER:-hci0} psm=${PSM:-255} time=${TIME:-20s} out=${OUT:-paper-000}

# Says what is missing, and ends with 4.
taut doctor --ble >/dev/null || {
    code=$?
    taut doctor --ble >&2 || true
    exit "$code"
}
case "${1:-}" in
serve)
    exec taut serve "l2cap://any/$psm?adapter=$adapter"
    ;;
measure)
    peer="l2cap://${2:?the address of the other machine, which its taut serve prints}/$psm?adapter=$adapter"
    mkdir -p "$out"
    taut doctor --ble --json >"$out/doctor.json"
    printf '%9s  %9s  %s\n' interval kbit/s published
    # The published blocks of 4,096 bytes, in the published order of intervals.
    for interval in 112.5ms:27.1 50ms:52 25ms:- 12.5ms:- 7.5ms:224.8; do
        published=${interval#*:} interval=${interval%:*}
        file=$out/$interval.json
        taut stream "$peer&interval=$interval" --direction down --block 4096 --time "$time" --json >"$file"
        # The first is the median of the rounds.
        bps=$(sed -n 's/^ *"throughput_bps": \([0-9]*\).*/\1/p' "$file" | head -n 1)
        printf '%9s  %7d.%d  %s\n' "$interval" $((bps / 1000)) $((bps % 1000 / 100)) "$published"
    done
    echo "what held the data, and what both ends agreed on: taut report $out/7.5ms.json"
    ;;
*)
    sed -n '5,6s/^# *//p' "$0" >&2
    exit 2
    ;;
esac
