#!/usr/bin/env bash
# Everything that needs an NVIDIA GPU, in one call of at most ten minutes: conformance, goldens, same bits, benches.
#
#   tools/gpu_round.sh BINARIES OUT [STEP...]
#
# BINARIES holds reprise, device_tests, simt_tests, their libraries in lib/ and model shapes in shapes/NAME/config.json
# (tools/gpu_pack.sh makes it on a machine without a GPU). Reports go to OUT. Every step has a time limit and prints one
# line; a step that fails does not stop the others, and the script's status says whether one did.
# Steps: machine probes conformance goldens verify sanitizer bench.
set -uo pipefail
bin=$(realpath "$1") out=$(realpath "$2")
shift 2
steps=${*:-machine probes conformance goldens verify sanitizer bench}
export LD_LIBRARY_PATH=$bin/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} REPRISE_REQUIRE_DEVICE=cuda
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
failed=0

# step NAME SECONDS COMMAND...: output to OUT/NAME.log.
step() {
  local name=$1 limit=$2 begin=$SECONDS status=0
  shift 2
  timeout "$limit" "$@" >"$out/$name.log" 2>&1 || status=$?
  if ((status == 0)); then
    echo "ok    $name ($((SECONDS - begin)) s)"
  else
    failed=1
    echo "FAIL  $name: status $status ($((SECONDS - begin)) s)"
    grep -E "FAILED|Failure|error|Error|differ" -A6 "$out/$name.log" | head -${LINES_OF_A_FAILURE:-25}
  fi
}

# Decode and prefill of one shape with random weights.
bench() {
  local name=$1 shape=$2
  shift 2
  step "bench-$name" 150 "$bin/reprise" bench one-batch --device cuda --load-format dummy \
    --model-path "$bin/shapes/$shape" "$@"
  grep -vE "^$|capturing|notice" "$out/bench-$name.log" | tail -14
}

for s in $steps; do
  case $s in
    machine)
      step machine 60 nvidia-smi
      step doctor 60 "$bin/reprise" doctor --device cuda
      tail -n 12 "$out/doctor.log"
      ;;
    probes)
      [[ -x $bin/cuda_probes ]] && step probes 120 "$bin/cuda_probes"
      ;;
    conformance) step conformance 120 "$bin/device_tests" '--gtest_filter=*cuda*' ;;
    goldens) step goldens 240 "$bin/simt_tests" '--gtest_filter=*_gpu' ;;
    verify)
      for model in qwen3_tied llama_gqa3_tied mistral_window24 mixtral_top2 qwen2_moe_shared deepseek_v2_lite gemma2 \
        gpt_oss qwen3_next; do
        step "verify-$model" 60 "$bin/reprise" graph verify --device cuda --dtype bfloat16 \
          --model-path "$root/tests/data/models/$model"
      done
      ;;
    sanitizer)
      command -v compute-sanitizer >/dev/null || { echo "skip  sanitizer: there is no compute-sanitizer"; continue; }
      for tool in memcheck racecheck; do
        step "$tool" 100 compute-sanitizer --tool "$tool" --error-exitcode 9 "$bin/simt_tests" \
          '--gtest_filter=*CudaGolden*qwen3_tied_bf16_gpu'
      done
      ;;
    bench)
      bench 0.6b qwen3-0.6b --dtype bfloat16 --batch-size 1,16,64 --input-len 512 --output-len 64
      bench 8b qwen3-8b --dtype bfloat16 --batch-size 1,16,64 --input-len 1024 --output-len 64
      ;;
    bench-experts)
      # A part of the layers: what a layer costs is the same.
      bench 30b-a3b-8-layers qwen3-30b-a3b --dtype bfloat16 --override num_hidden_layers=8 --batch-size 1,32 \
        --input-len 512 --output-len 32
      bench v2-lite-6-layers deepseek-v2-lite --dtype bfloat16 --override num_hidden_layers=6 --batch-size 1,32 \
        --input-len 512 --output-len 32
      ;;
    bench-int8)
      bench 8b-w8a8 qwen3-8b --dtype bfloat16 --quantization w8a8_int8 --batch-size 1,16,64 --input-len 1024 \
        --output-len 64
      ;;
    *) echo "step \"$s\" is not known" >&2; exit 2 ;;
  esac
done
exit "$failed"
