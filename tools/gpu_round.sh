#!/usr/bin/env bash
# Everything that needs an NVIDIA GPU, in one call of at most ten minutes: conformance, goldens, same bits, benches.
#
#   tools/gpu_round.sh BINARIES OUT [STEP...]
#
# BINARIES holds reprise, device_tests, simt_tests, their libraries in lib/ and model shapes in shapes/NAME/config.json
# (tools/gpu_pack.sh makes it on a machine without a GPU). Reports go to OUT: a log of each step, and round.json, of
# which tools/gpu_report.py makes tables and a comparison with an earlier round. Every step has a time limit and prints
# one line; a step that fails does not stop the others, and the script's status says whether one did. A step that the
# time of the round (REPRISE_ROUND_SECONDS, 590) leaves no room for is left out, and the report says so.
# Steps: machine probes conformance kernels goldens verify sanitizer bench bench-int8 bench-modes bench-experts profile.
set -uo pipefail
bin=$(realpath "$1") out=$(realpath "$2")
shift 2
all='machine probes conformance kernels goldens verify sanitizer bench bench-int8 bench-modes bench-experts profile'
steps=${*:-$all}
export LD_LIBRARY_PATH=$bin/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} REPRISE_REQUIRE_DEVICE=cuda
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# Tests of single kernels, which run on a GPU when they are told to. Kernels of weights in GGUF blocks are on no device.
kernels='CudaKernels.*:*CudaAttention.*:CudaPerHeadMatmul.*:*CudaLatent.*:CudaLatentAttention.*:CudaEncoder.*'
kernels+=':CudaLora.*:CudaExperts.*:CudaRecurrent.*:CudaSample.*:CudaDrawParts.*:CudaMaskLogits.*:CudaPacked.Experts*'
failed=0
records=()
end=$((SECONDS + ${REPRISE_ROUND_SECONDS:-590}))

rm -f "$out"/bench-*.json "$out"/profile-*.json  # of an earlier round
if [[ -f $bin/source_root && ! -e $(<"$bin/source_root") ]]; then
  mkdir -p "$(dirname "$(<"$bin/source_root")")"
  ln -s "$root" "$(<"$bin/source_root")"
fi

# step NAME SECONDS COMMAND...: output to OUT/NAME.log.
step() {
  local name=$1 limit=$2 begin=$SECONDS status=0 left=$((end - SECONDS))
  shift 2
  ((left > 5)) || { skip "$name" "the time of the round is over"; return; }
  ((limit <= left)) || limit=$left
  timeout "$limit" "$@" >"$out/$name.log" 2>&1 || status=$?
  records+=("{\"step\":\"$name\",\"status\":$status,\"seconds\":$((SECONDS - begin))}")
  if ((status == 0)); then
    echo "ok    $name ($((SECONDS - begin)) s)"
  else
    failed=1
    echo "FAIL  $name: status $status ($((SECONDS - begin)) s)"
    grep -E "FAILED|Failure|error|Error|differ" -A6 "$out/$name.log" | head -"${LINES_OF_A_FAILURE:-25}"
  fi
}

# skip NAME WHY
skip() {
  records+=("{\"step\":\"$1\",\"skipped\":\"$2\"}")
  echo "skip  $1: $2"
}

# Tests of a program in so many processes side by side: they wait for the host most of the time.
sharded() {
  local program=$1 filter=$2 shards=$3 pids=() status=0 i
  for ((i = 0; i < shards; ++i)); do
    GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$i "$program" "--gtest_filter=$filter" &
    pids+=($!)
  done
  for i in "${pids[@]}"; do wait "$i" || status=1; done
  return $status
}

# Decode and prefill of one shape with random weights.
bench() {
  local name=$1 shape=$2
  shift 2
  step "bench-$name" 150 "$bin/reprise" bench one-batch --json --device cuda --load-format dummy \
    --model-path "$bin/shapes/$shape" "$@"
  grep -m1 '^{"limits"' "$out/bench-$name.log" >"$out/bench-$name.json" || rm -f "$out/bench-$name.json"
}

# Where a step's time goes, launch by launch.
profile() {
  local name=$1 shape=$2
  shift 2
  step "profile-$name" 60 "$bin/reprise" graph profile --json --device cuda --load-format dummy --dtype bfloat16 \
    --graph-prefill off --model-path "$bin/shapes/$shape" --context 1024 "$@"
  grep -m1 '^{' "$out/profile-$name.log" >"$out/profile-$name.json" || rm -f "$out/profile-$name.json"
}

# One object: steps, benches and profiles by name.
write_round() {
  local file first=1
  {
    printf '{"machine":"%s","steps":[%s],"results":{' \
      "$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | head -1)" \
      "$(IFS=,; echo "${records[*]}")"
    for file in "$out"/bench-*.json "$out"/profile-*.json; do
      [[ -s $file ]] || continue
      ((first)) || printf ','
      first=0
      printf '\n"%s":%s' "$(basename "$file" .json)" "$(<"$file")"
    done
    printf '}}\n'
  } >"$out/round.json"
}

for s in $steps; do
  case $s in
    machine)
      step machine 60 nvidia-smi
      step doctor 60 "$bin/reprise" doctor --device cuda
      tail -n 12 "$out/doctor.log"
      step doctor-json 60 "$bin/reprise" doctor --device cuda --json
      ;;
    probes)
      if [[ -x $bin/cuda_probes ]]; then
        step probes 120 "$bin/cuda_probes"
      else
        skip probes "tools/gpu_pack.sh found no nvcc to compile them with"
      fi
      ;;
    conformance) step conformance 120 "$bin/device_tests" '--gtest_filter=*cuda*' ;;
    kernels) step kernels 90 env REPRISE_KERNELS_ON=gpu "$bin/simt_tests" "--gtest_filter=$kernels" ;;
    goldens)
      export -f sharded
      step goldens 120 bash -c 'sharded "$@"' sharded "$bin/simt_tests" '*_gpu:*/gpu:CudaSampledSteps.*:CudaGpu.*' 12
      ;;
    verify)
      for model in qwen3_tied llama_gqa3_tied mistral_window24 mixtral_top2 qwen2_moe_shared deepseek_v2_lite gemma2 \
        gpt_oss qwen3_next; do
        step "verify-$model" 60 "$bin/reprise" graph verify --device cuda --dtype bfloat16 \
          --model-path "$root/tests/data/models/$model"
      done
      ;;
    sanitizer)
      tools='memcheck racecheck initcheck synccheck'
      command -v compute-sanitizer >/dev/null || { skip sanitizer "there is no compute-sanitizer"; tools=; }
      # Memory of a kernel's test ends where its operand does, that of a model lies in one arena.
      few_kernels='CudaKernels.Elements*:CudaKernels.Norms*:CudaKernels.ProductsAre*:*CudaAttention.IsNear*'
      small='*CudaGolden*/qwen3_tied_bf16_gpu:*CudaGolden*/gpt_oss_bf16_gpu:*CudaGolden*/qwen3_next_bf16_gpu'
      for tool in $tools; do
        step "$tool" 60 compute-sanitizer --tool "$tool" --error-exitcode 9 "$bin/simt_tests" \
          "--gtest_filter=$small"
        step "$tool-kernels" 40 env REPRISE_KERNELS_ON=gpu compute-sanitizer --tool "$tool" --error-exitcode 9 \
          "$bin/simt_tests" "--gtest_filter=$few_kernels"
      done
      ;;
    bench)
      bench 0.6b qwen3-0.6b --dtype bfloat16 --batch-size 1,16,64 --input-len 512 --output-len 64
      bench 8b qwen3-8b --dtype bfloat16 --batch-size 1,16,64 --input-len 1024 --output-len 64
      ;;
    bench-modes)
      # A prompt in one graph and in pieces, steps without graphs, the largest batch of the goals.
      bench 0.6b-whole qwen3-0.6b --dtype bfloat16 --graph-prefill whole --batch-size 1 --input-len 2048 --output-len 16
      bench 0.6b-pieces qwen3-0.6b --dtype bfloat16 --batch-size 1 --input-len 2048 --output-len 16
      bench 0.6b-eager qwen3-0.6b --dtype bfloat16 --graph off --batch-size 1 --input-len 512 --output-len 64
      bench 8b-256 qwen3-8b --dtype bfloat16 --graph-decode-sizes 256 --batch-size 256 --input-len 1024 --output-len 16
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
    profile)
      profile 8b-1 qwen3-8b --override num_hidden_layers=4 --graph-decode-sizes 1 --batch 1
      profile 8b-64 qwen3-8b --override num_hidden_layers=4 --graph-decode-sizes 64 --batch 64
      profile 8b-w8a8-1 qwen3-8b --override num_hidden_layers=4 --graph-decode-sizes 1 --batch 1 \
        --quantization w8a8_int8
      ;;
    *) echo "step \"$s\" is not known" >&2; exit 2 ;;
  esac
  write_round
done
exit "$failed"
