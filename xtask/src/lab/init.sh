#!/bin/busybox sh
# The guest's first process: runs /lab/command once, reports on ttyS3 and stops the machine.
# ttyS0 is the kernel's console, ttyS1 and ttyS2 are the command's standard output and error. Serial ports, because bytes
# that are written to them have left the guest at once: nothing waits for the host, and a hang leaves what was printed.
mount -t devtmpfs dev /dev
exec </dev/null >/dev/console 2>&1
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t debugfs debug /sys/kernel/debug
mkdir -p /dev/shm /dev/pts
mount -t devpts pts /dev/pts
ip link set lo up
hostname lab
for port in 1 2 3; do stty -F /dev/ttyS$port 115200 raw -echo; done

fail() {
    echo "failed $1" >/dev/ttyS3
    reboot -f
}

while read -r module; do
    modprobe "$module" || fail "modprobe $module"
done </lab/modules

# There is one only when ports lead to this machine.
if [ -e /sys/class/net/eth0 ]; then ip addr add 10.0.2.15/24 dev eth0 && ip link set eth0 up || fail "set-up of eth0"; fi

# Without a command the machine stops at the end of this write, to be saved; one that goes on from there has a command.
if [ ! -e /lab/command ]; then
    printf '\001' | dd of=/dev/port bs=1 seek=$((0x505)) conv=notrunc 2>/dev/null
    modprobe qemu_fw_cfg && cat /sys/firmware/qemu_fw_cfg/by_name/opt/taut/command/raw >/lab/command || fail "the command"
    chmod +x /lab/command
fi

# The ports are terminals, of which nobody sits in front.
export OUT=/out HOME=/root PATH=/bin TERM=dumb
cd /root
echo begin >/dev/ttyS3
/lab/command >/dev/ttyS1 2>/dev/ttyS2
code=$?
echo "end $code" >/dev/ttyS3

# The share comes last: what it needs of the host must not disturb the command.
if [ -n "$(ls -A /out)" ]; then
    modprobe -a virtio_pci 9pnet_virtio 9p
    mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144 share /share || fail "mount of the share"
    cp -r /out/. /share || fail "copying of files from \$OUT"
    umount /share
fi
# Setting a port waits until all is out.
for port in 1 2; do stty -F /dev/ttyS$port 115200; done
echo "done" >/dev/ttyS3
reboot -f
